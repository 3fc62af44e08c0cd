
"use strict";
// How one answer, or one trajectory, is drawn. Model text is only ever set as text, never as markup.
const cards = (() => {
  const LONG = 700; // characters after which a text is folded
  const BRIEF = 100; // up to which the JSON of a trajectory stays on its line, as it was written
  const ENDS = {
    "answered": "it answered without a call",
    "done": "the environment was done",
    "turn limit": "its last turn still made a call",
    "call limit": "its calls would have been too many",
    "token limit": "no token was left, or a tool's answer did not fit",
  };
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const show = (value, digits = 2) => isNumber(value) ? value.toFixed(digits).replace("-", "−") : "–";
  const signed = (value) => isNumber(value) ? (value > 0 ? "+" : "") + show(value) : "–";
  const many = (count, noun) => count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
  const isObject = (value) => typeof value === "object" && value !== null;
  const list = (value) => Array.isArray(value) ? value : [];
  const spoken = (content) => typeof content === "string" ? content : content === undefined || content === null ? "" : JSON.stringify(content);
  const words = (messages) => typeof messages === "string" ? messages : list(messages).map((one) => spoken(one.content)).join("\n");
  const verdictOf = (row) => row.verdict || {};
  const acts = (row) => Array.isArray(row.messages);

  function make(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined && text !== null) node.textContent = text;
    return node;
  }

  function read(text) {
    if (typeof text !== "string") return text;
    try { return JSON.parse(text); } catch { return undefined; }
  }

  // What a rollout with tools did: its turns, each with its calls, each with its answer and what it was counted as.
  function turnsOf(row) {
    const turns = [];
    let told = 0; // tools' messages so far
    for (const message of row.messages) {
      if (message.role === "assistant") {
        const number = turns.length;
        turns.push({ number, message, calls: list(message.tool_calls).map(callOf), others: [], tokens: list(row.turns)[number] });
        continue;
      }
      const mark = message.role === "tool" ? marksOf(row, told++, message) : [];
      const calls = turns.length ? turns.at(-1).calls : [];
      const waiting = message.role === "tool" ? calls.filter((call) => !call.result) : [];
      const call = waiting.find((one) => message.tool_call_id && one.id === message.tool_call_id) || waiting[0];
      if (call) Object.assign(call, { result: message, marks: mark });
      else if (turns.length) turns.at(-1).others.push(message);
      else turns.push({ number: -1, message: {}, calls: [], others: [message] });
    }
    return turns;
  }

  function callOf(entry) {
    const made = isObject(entry) && isObject(entry.function) ? entry.function : {};
    return { id: isObject(entry) ? entry.id : "", name: spoken(made.name) || "(no name)", given: made.arguments, result: null, marks: ["not run"] };
  }

  // Runs from before calls were marked only show which of them failed.
  function marksOf(row, at, message) {
    const marks = list(list(row.marks)[at]).map(spoken);
    if (Array.isArray(row.marks)) return marks.filter((one) => one !== "failed" || !marks.some((other) => other === "malformed" || other === "hung"));
    const answer = read(message.content);
    return isObject(answer) && answer.error ? ["failed"] : [];
  }

  const bad = (call) => call.marks.some((one) => one !== "repeated");

  function drawCard(row, who) {
    const verdict = verdictOf(row);
    const judged = verdict.correct === true ? "right" : verdict.correct === false ? "wrong" : "";
    const node = make("article", "sample " + judged);
    const header = make("header");
    const says = verdict.well_formed === false ? "✗ not well formed" : judged === "right" ? "✓ right" : judged === "wrong" ? "✗ wrong" : "no verdict";
    if (who) header.append(who);
    header.append(make("span", "says", says));
    if (row.pay) header.append(make("span", "mark", row.pay === "paid" ? "paid though wrong" : "not paid though right"));
    if ("reward" in row) header.append(make("span", "reward", "reward " + show(row.reward)));
    node.append(header, drawParts(row, verdict), ...drawReasons(row));
    if (acts(row)) node.append(...drawActs(row, node));
    else node.append(...thought(row.reasoning), ...answer(row.text || ""));
    return node;
  }

  function drawParts(row, verdict) {
    const parts = make("p", "parts");
    if ("advantage" in row) parts.append(make("span", "advantage", "advantage " + signed(row.advantage)));
    for (const [name, value] of Object.entries(row.rewards || {})) parts.append(make("span", "", name + " " + show(value)));
    for (const [name, ok] of Object.entries(verdict.fields || {})) {
      if (ok !== null) parts.append(make("span", ok ? "yes" : "no", (ok ? "✓ " : "✗ ") + name));
    }
    const given = row.given_tokens ? " and " + row.given_tokens.toLocaleString("en") + " of tools" : "";
    if (isNumber(row.tokens)) parts.append(make("span", "", many(row.tokens, "token") + given));
    if (verdict.handed_off) parts.append(make("span", "", "handed off"));
    for (const [kind, count] of Object.entries(row.tools || {})) {
      if (kind === "calls") parts.append(make("span", "", many(count, "call")));
      else if (count) parts.append(make("span", kind === "repeated" ? "" : "no", count + " " + kind));
    }
    if (row.ended) parts.append(make("span", row.ended in ENDS && row.terminated === false ? "no" : "", "ended: " + spoken(row.ended)));
    else if (row.terminated === false) parts.append(make("span", "no", "cut off"));
    return parts;
  }

  // Why a reward function gave no more: the rule that fired, in its own words.
  function drawReasons(row) {
    return Object.entries(isObject(row.reasons) ? row.reasons : {}).filter(([, why]) => why).map(([name, why]) => {
      const line = make("p", "why");
      line.append(make("b", "", name), " " + spoken(why));
      return line;
    });
  }

  function drawActs(row, card) {
    const turns = turnsOf(row);
    const path = drawPath(turns.flatMap((turn) => turn.calls));
    const details = make("details", "trajectory");
    details.append(make("summary", "", "Turn by turn, " + many(turns.filter((turn) => turn.number >= 0).length, "turn")));
    let drawn = false; // only once it is opened: a page of closed ones stays light
    details.addEventListener("toggle", () => {
      card.classList.toggle("open", details.open);
      if (details.open && !drawn) details.append(...turns.map((turn) => drawTurn(row, turn)), drawEnd(row));
      drawn = true;
    });
    const last = row.messages.at(-1) || {};
    const said = last.role === "assistant" && !list(last.tool_calls).length ? answer(spoken(last.content), true) : [];
    return [...(path.childNodes.length ? [path] : []), ...said, details];
  }

  // The calls in their order; equal ones that follow each other are counted.
  function drawPath(calls) {
    const path = make("p", "path");
    const alike = (one, other) => one && one.name === other.name && one.marks.join() === other.marks.join();
    calls.forEach((call, at) => {
      if (alike(calls[at - 1], call)) return;
      let times = 1;
      while (alike(calls[at + times], call)) times += 1;
      const step = make("span", "step" + (bad(call) ? " bad" : ""), call.name);
      const words = [call.marks.join(", "), times > 1 ? "×" + times : ""].filter(Boolean).join(" ");
      if (words) step.append(make("small", "", words));
      path.append(step);
    });
    return path;
  }

  function drawTurn(row, turn) {
    const node = make("section", "turn");
    const header = make("header");
    const facts = [isNumber(turn.tokens) ? many(turn.tokens, "token") : ""];
    if (Array.isArray(row.turn_rewards)) facts.push("reward " + show(row.turn_rewards[turn.number]));
    if (Array.isArray(row.turn_advantages)) facts.push("advantage " + signed(row.turn_advantages[turn.number]));
    if (turn.number >= 0) header.append(make("b", "", "Turn " + (turn.number + 1)), ...facts.filter(Boolean).map((fact) => make("span", "", fact)));
    node.append(header, ...thought(turn.message.reasoning_content));
    const content = spoken(turn.message.content);
    if (content) node.append(...answer(content, true));
    node.append(...turn.calls.map(drawCall));
    const unread = isObject(row.unread) ? row.unread[turn.number + 1] : "";
    if (unread) node.append(make("p", "label", "As the model wrote it"), ...foldable(spoken(unread)));
    for (const other of turn.others) node.append(make("p", "label", spoken(other.role)), ...answer(spoken(other.content), true));
    if (!content && !turn.calls.length && !unread && turn.number >= 0) node.append(make("div", "text muted", "(empty)"));
    return node;
  }

  function drawCall(call) {
    const node = make("div", "call" + (bad(call) ? " bad" : ""));
    const header = make("header");
    header.append(make("b", "", call.name), ...call.marks.map((one) => make("span", one === "repeated" ? "mark" : "mark bad", one)));
    node.append(header, ...drawArguments(call.given));
    if (call.result) {
      const result = make("div", "result");
      result.append(...answer(spoken(call.result.content), true));
      node.append(result);
    }
    return node;
  }

  function drawArguments(given) {
    const made = read(given);
    if (!isObject(made) || Array.isArray(made)) return [make("div", "text muted", given ? spoken(given) : "(arguments could not be read)")];
    return Object.entries(made).flatMap(([name, value]) => {
      const line = make("div", "text");
      line.append(make("span", "key", name), ": ");
      if (typeof value === "string" && value.includes("\n")) return [line, make("div", "text block", value)]; // a program, say
      colour(line, JSON.stringify(value, null, 2), true);
      return [line];
    });
  }

  function drawEnd(row) {
    const node = make("p", "end");
    const why = ENDS[row.ended];
    if (row.ended) node.append(make("b", "", "Ended: " + spoken(row.ended)), why ? " (" + why + ")" : "");
    return node;
  }

  function thought(reasoning) {
    if (!reasoning) return [];
    const details = make("details");
    details.append(make("summary", "", "Reasoning"), make("div", "text", spoken(reasoning)));
    return [details];
  }

  // An answer that is JSON is laid out; what was written stays one click away, since layout hides spacing and repeated keys.
  function answer(text, brief = false) {
    const value = read(text);
    if (!isObject(value)) return text ? foldable(text) : [make("div", "text muted", "(empty)")];
    if (brief && text.length <= BRIEF) return foldable(text, colour);
    const pretty = JSON.stringify(value, null, 2);
    const [body, ...fold] = foldable(pretty, colour);
    const raw = make("button", "link", "As written");
    raw.type = "button";
    raw.addEventListener("click", () => {
      const written = raw.textContent === "As written";
      if (written) body.textContent = text; else colour(body, pretty);
      raw.textContent = written ? "Laid out" : "As written";
    });
    return [body, ...fold, raw];
  }

  function colour(node, text, append = false) {
    if (!append) node.textContent = "";
    const token = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g;
    let from = 0;
    for (const match of text.matchAll(token)) {
      node.append(text.slice(from, match.index), make("span", match[2] ? "key" : "value", match[1] || match[0]), match[2] || "");
      from = match.index + match[0].length;
    }
    node.append(text.slice(from));
  }

  function foldable(text, fill = (node, words) => { node.textContent = words; }) {
    const node = make("div", "text");
    fill(node, text);
    if (text.length <= LONG && text.split("\n").length <= 14) return [node];
    node.classList.add("folded");
    const label = "Show all, " + text.length.toLocaleString("en") + " characters";
    const button = make("button", "link", label);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const folded = node.classList.toggle("folded");
      button.textContent = folded ? label : "Show less";
      button.setAttribute("aria-expanded", String(!folded));
    });
    return [node, button];
  }

  return { make, isNumber, isObject, list, show, many, spoken, words, foldable, verdictOf, acts, drawCard };
})();
