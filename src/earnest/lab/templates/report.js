// The browser of rollouts and answers. One page of groups is in the document at a time.
(() => {
  const holder = document.getElementById("data");
  addEventListener("beforeprint", () => document.querySelectorAll("#made details").forEach((one) => { one.open = true; }));
  if (!holder) return;

  const { make, isNumber, isObject, list, show, many, spoken, words, foldable, verdictOf, acts, drawCard } = cards;
  const data = JSON.parse(holder.textContent);
  const PAGE = 8; // groups on a page
  const $ = (id) => document.getElementById(id);
  // Training makes groups of rollouts; the evaluation's answers to one row, of all models, stand together.
  const SOURCES = {
    rollouts: { noun: "rollout", unit: "group", title: "Training", key: (row) => row.run + " " + row.step + " " + row.group },
    answers: { noun: "answer", unit: "row", title: "Evaluation", key: (row) => row.split + " " + row.id },
  };
  // Verdicts: what a chip selects. An answer that is not well formed is also wrong.
  const VERDICTS = [
    ["", "all", () => true],
    ["right", "right", (row) => verdictOf(row).correct === true],
    ["wrong", "wrong", (row) => verdictOf(row).correct === false],
    ["malformed", "not well formed", (row) => verdictOf(row).well_formed === false],
    ["paid", "paid though wrong", (row) => row.pay === "paid"],
    ["unpaid", "not paid though right", (row) => row.pay === "unpaid"],
  ];
  const counted = (kind) => (row) => isObject(row.tools) && row.tools[kind] > 0;
  const CALLS = [
    ["failed", "some failed", counted("failed")],
    ["malformed", "some malformed", counted("malformed")],
    ["hung", "some hung", counted("hung")],
    ["repeated", "some repeated", counted("repeated")],
    ["none failed", "none failed", (row) => acts(row) && counted("calls")(row) && !counted("failed")(row)],
    ["none", "no call made", (row) => acts(row) && !counted("calls")(row)],
  ];
  const partOf = (row) => row.split + ", " + row.mode;
  const promptWords = data.prompts.map((one) => words(one).toLowerCase());
  const said = new Map(); // of each row what it says, lower-cased at the first search
  function haystack(row) {
    if (!said.has(row)) {
      const turns = list(row.messages).map((one) => [spoken(one.content), spoken(one.reasoning_content), spoken(one.tool_calls)].join("\n"));
      said.set(row, [row.id, row.text, row.reasoning || "", spoken(row.reasons), ...turns].join("\n").toLowerCase());
    }
    return said.get(row);
  }

  let source = "rollouts";
  let all = [];
  let steps = [];
  const whole = new Map(); // every group, unfiltered
  let groups = [];
  let page = 0;

  function open(name) {
    source = name;
    all = data[name];
    whole.clear();
    for (const row of all) {
      const key = SOURCES[name].key(row);
      if (!whole.has(key)) whole.set(key, []);
      whole.get(key).push(row);
    }
    steps = [...new Set(all.map((row) => row.step))].sort((a, b) => a - b);
    $("step").max = steps.length;
    $("run-name").textContent = name === "rollouts" ? "Run" : "Model";
    const runs = Object.entries(data.names).filter(([run]) => all.some((row) => row.run === run));
    options("run", runs);
    options("part", name === "rollouts" ? [] : [...new Set(all.map(partOf))].map((part) => [part, part]));
    options("ended", [...new Set(all.map((row) => row.ended).filter(Boolean))].map((why) => [why, why]));
    options("calls", all.some(acts) ? CALLS.filter(([, , keep]) => all.some(keep)) : []);
    for (const one of document.querySelectorAll("#filters .training")) one.hidden = name !== "rollouts";
    const chips = VERDICTS.map(([value, title, keep]) => [value, title, all.filter(keep).length]).filter(([value, , count]) => count || !value.endsWith("paid"));
    $("verdicts").replaceChildren($("verdicts").firstElementChild, ...chips.map(([value, title, count]) => chip("verdict", value, title, count, !value)));
    for (const [id, value] of [["step", 0], ["low", ""], ["high", ""]]) $(id).value = value; // what is searched for stays
    refresh();
  }

  function options(id, pairs) {
    $(id).replaceChildren(new Option("all", ""), ...pairs.map(([value, name]) => new Option(name, value)));
    $(id).closest("label").hidden = !pairs.length;
  }

  function chip(group, value, title, count, checked) {
    const label = make("label");
    const input = make("input");
    Object.assign(input, { type: "radio", name: group, value, checked, defaultChecked: checked });
    label.append(input, title + " ", make("span", "", count.toLocaleString("en")));
    return label;
  }

  function matching() {
    const chosen = (pairs, value) => (pairs.find(([name]) => name === value) || [])[2] || (() => true);
    const keep = chosen(VERDICTS, document.querySelector("[name=verdict]:checked").value);
    const called = chosen(CALLS, $("calls").value);
    const [run, part, ended] = ["run", "part", "ended"].map((id) => $(id).value);
    const step = steps[Number($("step").value) - 1];
    const low = $("low").value === "" ? -Infinity : Number($("low").value);
    const high = $("high").value === "" ? Infinity : Number($("high").value);
    const bounded = low !== -Infinity || high !== Infinity;
    const search = $("search").value.trim().toLowerCase();
    return all.filter((row) => keep(row) && called(row) && (!run || row.run === run) && (!part || partOf(row) === part)
      && (!ended || row.ended === ended) && (step === undefined || row.step === step)
      && (!bounded || (isNumber(row.reward) && row.reward >= low && row.reward <= high))
      && (!search || haystack(row).includes(search) || promptWords[row.prompt].includes(search)));
  }

  function refresh() {
    const rows = matching();
    const { key, noun, unit } = SOURCES[source];
    const found = new Map();
    for (const row of rows) {
      if (!found.has(key(row))) found.set(key(row), []);
      found.get(key(row)).push(row);
    }
    groups = [...found].map(([name, samples]) => ({ key: name, samples }));
    if (source === "rollouts") arrange($("sort").value);
    page = 0;
    const step = steps[Number($("step").value) - 1];
    $("step-name").textContent = step === undefined ? "all" : step;
    $("count").textContent = rows.length ? many(rows.length, noun) + " in " + many(groups.length, unit) : "No " + noun + " matches.";
    draw();
  }

  function arrange(sort) {
    const direction = sort.startsWith("-") ? -1 : 1;
    const reward = (row) => isNumber(row.reward) ? row.reward : -Infinity * direction;
    if (sort.endsWith("reward")) {
      for (const group of groups) group.samples.sort((a, b) => direction * (reward(a) - reward(b)) || a.sample - b.sample);
      groups.sort((a, b) => direction * (reward(a.samples[0]) - reward(b.samples[0])) || 0);
    } else {
      groups.sort((a, b) => direction * (a.samples[0].step - b.samples[0].step));
    }
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
    const place = source === "rollouts" ? [data.names[first.run], "step " + first.step] : [first.split, ...Object.entries(first.slices || {}).map((pair) => pair.join(": "))];
    const facts = [...place, right + " of " + full.length + " right"];
    if (rewards.length) facts.push("mean reward " + show(rewards.reduce((a, b) => a + b, 0) / rewards.length));
    if (dead) facts.push("dead: all earned the same");
    if (samples.length < full.length) facts.push(samples.length + " of " + full.length + " match");
    header.append(make("b", "", first.id), ...facts.map((fact) => make("span", "", fact)));
    const cardList = make("div", "samples");
    cardList.append(...samples.map((row) => drawCard(row, source === "answers" ? whoOf(row) : null)));
    node.append(header, drawPrompt(data.prompts[first.prompt]), cardList);
    return node;
  }

  function whoOf(row) {
    const node = make("span", "who");
    const dot = make("i", "dot");
    dot.style.background = "var(--" + row.run + ")";
    node.append(dot, data.names[row.run] + (row.mode === "sampled" ? ", sample " + (row.sample + 1) : ""));
    return node;
  }

  function drawPrompt(messages) {
    const node = make("div", "prompt");
    if (!messages) return node; // answers of older runs have none
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

  const present = Object.keys(SOURCES).filter((name) => data[name].length);
  $("sources").append(...present.map((name, at) => chip("source", name, SOURCES[name].title, data[name].length, !at)));
  $("sources").hidden = present.length < 2;
  $("sources").addEventListener("change", (event) => open(event.target.value));
  open(present[0]);
})();
