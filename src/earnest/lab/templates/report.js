
"use strict";
// The rollout browser. Model text is only ever set as text, never as markup. One page of groups is in the document at a time.
(() => {
  const holder = document.getElementById("data");
  addEventListener("beforeprint", () => document.querySelectorAll("#made details").forEach((one) => { one.open = true; }));
  if (!holder) return;

  const data = JSON.parse(holder.textContent);
  const all = data.rollouts;
  const PAGE = 8;        // groups on a page
  const LONG = 700;      // characters after which a text is folded
  const $ = (id) => document.getElementById(id);
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const show = (value, digits = 2) => isNumber(value) ? value.toFixed(digits).replace("-", "−") : "–";
  const signed = (value) => isNumber(value) ? (value > 0 ? "+" : "") + show(value) : "–";

  function make(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined && text !== null) node.textContent = text;
    return node;
  }

  // Verdicts: what a chip selects. An answer that is not well formed is also wrong.
  const verdictOf = (row) => row.verdict || {};
  const VERDICTS = [
    ["", "all", () => true],
    ["right", "right", (row) => verdictOf(row).correct === true],
    ["wrong", "wrong", (row) => verdictOf(row).correct === false],
    ["malformed", "not well formed", (row) => verdictOf(row).well_formed === false],
  ];
  for (const [value, name, keep] of VERDICTS) {
    const label = make("label");
    const input = make("input");
    Object.assign(input, { type: "radio", name: "verdict", value, checked: value === "", defaultChecked: value === "" });
    label.append(input, name + " ", make("span", "", all.filter(keep).length.toLocaleString("en")));
    $("verdicts").append(label);
  }
  for (const [value, name] of Object.entries(data.names)) {
    const option = make("option", "", name);
    option.value = value;
    $("run").append(option);
  }
  const steps = [...new Set(all.map((row) => row.step))].sort((a, b) => a - b);
  $("step").max = steps.length;

  const words = (messages) => typeof messages === "string" ? messages : (messages || []).map((one) => spoken(one.content)).join("\n");
  const spoken = (content) => typeof content === "string" ? content : content === undefined || content === null ? "" : JSON.stringify(content);
  const promptWords = data.prompts.map((one) => words(one).toLowerCase());
  let searchable = null; // lower-cased once, at the first search
  const haystack = (at) => {
    searchable ||= all.map((row) => [row.id, row.text, row.reasoning || ""].join("\n").toLowerCase());
    return searchable[at];
  };

  let groups = [];
  let page = 0;

  function matching() {
    const verdict = document.querySelector("[name=verdict]:checked").value;
    const keep = VERDICTS.find(([value]) => value === verdict)[2];
    const run = $("run").value;
    const step = steps[Number($("step").value) - 1];
    const low = $("low").value === "" ? -Infinity : Number($("low").value);
    const high = $("high").value === "" ? Infinity : Number($("high").value);
    const bounded = low !== -Infinity || high !== Infinity;
    const search = $("search").value.trim().toLowerCase();
    return all.filter((row, at) => keep(row) && (!run || row.run === run) && (step === undefined || row.step === step)
      && (!bounded || (isNumber(row.reward) && row.reward >= low && row.reward <= high))
      && (!search || haystack(at).includes(search) || promptWords[row.prompt].includes(search)));
  }

  const keyOf = (row) => row.run + " " + row.step + " " + row.group;
  const whole = new Map();
  for (const row of all) {
    const key = keyOf(row);
    if (!whole.has(key)) whole.set(key, []);
    whole.get(key).push(row);
  }

  function refresh() {
    const rows = matching();
    const found = new Map();
    for (const row of rows) {
      const key = keyOf(row);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    const sort = $("sort").value;
    const direction = sort.startsWith("-") ? -1 : 1;
    const reward = (row) => isNumber(row.reward) ? row.reward : -Infinity * direction;
    groups = [...found].map(([key, samples]) => ({ key, samples }));
    if (sort.endsWith("reward")) {
      for (const group of groups) group.samples.sort((a, b) => direction * (reward(a) - reward(b)) || a.sample - b.sample);
      groups.sort((a, b) => direction * (reward(a.samples[0]) - reward(b.samples[0])) || 0);
    } else {
      groups.sort((a, b) => direction * (a.samples[0].step - b.samples[0].step));
    }
    page = 0;
    const step = steps[Number($("step").value) - 1];
    $("step-name").textContent = step === undefined ? "all" : step;
    const many = (count, noun) => count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
    $("count").textContent = rows.length ? many(rows.length, "rollout") + " in " + many(groups.length, "group") : "No rollout matches.";
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(groups.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    $("groups").replaceChildren(...groups.slice(page * PAGE, (page + 1) * PAGE).map(drawGroup));
    $("page").textContent = (page + 1).toLocaleString("en") + " of " + pages.toLocaleString("en");
    for (const id of ["previous", "previous-below"]) $(id).disabled = page === 0;
    for (const id of ["next", "next-below"]) $(id).disabled = page === pages - 1;
  }

  function drawGroup({ key, samples }) {
    const first = samples[0];
    const full = whole.get(key);
    const node = make("article", "group");
    const header = make("header");
    const rewards = full.map((row) => row.reward).filter(isNumber);
    const right = full.filter((row) => verdictOf(row).correct === true).length;
    const dead = rewards.length > 1 && rewards.every((one) => one === rewards[0]);
    const facts = [data.names[first.run], "step " + first.step, right + " of " + full.length + " right"];
    if (rewards.length) facts.push("mean reward " + show(rewards.reduce((a, b) => a + b, 0) / rewards.length));
    if (dead) facts.push("dead: all earned the same");
    if (samples.length < full.length) facts.push(samples.length + " of " + full.length + " match");
    header.append(make("b", "", first.id), ...facts.map((fact) => make("span", "", fact)));
    const list = make("div", "samples");
    list.append(...samples.map(drawSample));
    node.append(header, drawPrompt(data.prompts[first.prompt]), list);
    return node;
  }

  function drawPrompt(messages) {
    const node = make("div", "prompt");
    if (!Array.isArray(messages)) { node.append(...foldable(words(messages))); return node; }
    const last = messages.at(-1) || {};
    node.append(...foldable(spoken(last.content)));
    if (messages.length > 1) {
      const details = make("details");
      details.append(make("summary", "muted", "The whole prompt, " + messages.length + " messages"));
      for (const one of messages) details.append(make("div", "role", one.role), make("div", "text", spoken(one.content)));
      node.append(details);
    }
    return node;
  }

  function drawSample(row) {
    const verdict = verdictOf(row);
    const judged = verdict.correct === true ? "right" : verdict.correct === false ? "wrong" : "";
    const node = make("article", "sample " + judged);
    const header = make("header");
    const says = verdict.well_formed === false ? "✗ not well formed" : judged === "right" ? "✓ right" : judged === "wrong" ? "✗ wrong" : "no verdict";
    header.append(make("span", "says", says), make("span", "reward", "reward " + show(row.reward)));
    const parts = make("p", "parts");
    parts.append(make("span", "advantage", "advantage " + signed(row.advantage)));
    for (const [name, value] of Object.entries(row.rewards || {})) parts.append(make("span", "", name + " " + show(value)));
    for (const [name, ok] of Object.entries(verdict.fields || {})) {
      if (ok !== null) parts.append(make("span", ok ? "yes" : "no", (ok ? "✓ " : "✗ ") + name));
    }
    if (isNumber(row.tokens)) parts.append(make("span", "", row.tokens + " tokens"));
    if (verdict.handed_off) parts.append(make("span", "", "handed off"));
    if (row.terminated === false) parts.append(make("span", "no", "cut off"));
    node.append(header, parts);
    if (row.reasoning) {
      const details = make("details");
      details.append(make("summary", "", "Reasoning"), make("div", "text", row.reasoning));
      node.append(details);
    }
    node.append(...answer(row.text || ""));
    return node;
  }

  // An answer that is JSON is laid out; what was written stays one click away, since layout hides spacing and repeated keys.
  function answer(text) {
    let value;
    try { value = JSON.parse(text); } catch { return text ? foldable(text) : [make("div", "text muted", "(empty)")]; }
    if (typeof value !== "object" || value === null) return foldable(text);
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

  function colour(node, text) {
    node.textContent = "";
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

  let waiting = 0;
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(refresh, 80); };
  $("filters").addEventListener("input", soon);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => setTimeout(refresh));
  const turn = (by, up) => () => { page += by; draw(); if (up) $("filters").scrollIntoView(); };
  $("previous").addEventListener("click", turn(-1));
  $("next").addEventListener("click", turn(1));
  $("previous-below").addEventListener("click", turn(-1, true));
  $("next-below").addEventListener("click", turn(1, true));
  refresh();
})();
