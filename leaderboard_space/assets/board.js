// One benchmark's page: draws the tree of branches, asks the server for what a selection changes, keeps the state in the address.
// `element` is the component.
// Everything from the store reaches the page as escaped HTML from the server, or as textContent here.
function medprobeBenchmark(element) {
const root = element.querySelector(".mp");
if (!root) return;
const side = root.querySelector(".side"), panel = root.querySelector(".panel"), below = root.querySelector(".breakdown");
const format = root.dataset.format, server = medprobe.server(format);
let state = { section: null, metric: null, branches: [], shown: null, facet: null, one: null, find: "", rows: null, sorts: {} };
let stamp = panel.dataset.stamp || null, treeKey = null, treeSet = null, asked = 0, groups = [], rows = [], query = "", current = null, mapOpen = null, treeShows = null;
const open = new Set();
let counted = (node) => String(node.count), counts = {};
const facets = medprobeFacets((path, on) => {
  const others = state.branches.filter((branch) => keyOf(branch) !== keyOf(path));
  choose({ branches: on ? [...others, path] : others });
});

const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const keyOf = (path) => JSON.stringify(path);
const say = (line) => {
  let note = root.querySelector(".trouble");
  if (!note) { note = make("p", "trouble"); note.setAttribute("role", "alert"); root.prepend(note); }
  note.textContent = line;
  note.hidden = !line;
};
async function ask(name, extra) {
  let answer;
  try {
    answer = await server[name]({ format, section: state.section, metric: state.metric, branches: state.branches, shown: state.shown, find: state.find, rows: state.rows, sorts: state.sorts, ...extra });
  } catch (error) {
    throw new Error("The server did not answer; what you see belongs to the selection before.");
  }
  if (!answer || "error" in answer) throw new Error(answer && answer.error ? answer.error : "The server gave no answer.");
  return answer.ok;
}

// ---- the address: #/b/benchmark?s=section&m=metric&r=results&by=facet&one=result&find=words&rows=160&branch=facet:Label > Label&facet=facet:Label&sort=table:d:column
const SEPARATOR = " > ";
function readAddress(given) {
  state.section = given.get("s"); state.metric = given.get("m"); state.shown = given.get("r"); state.facet = given.get("by"); state.one = given.get("one");
  state.find = given.get("find") || ""; state.rows = Number(given.get("rows")) || null;
  state.sorts = readSorts(given);
  const read = (said) => { const at = said.indexOf(":"); return at < 1 ? null : [said.slice(0, at), said.slice(at + 1)]; };
  const branches = given.getAll("branch").map(read).filter(Boolean).map(([facet, labels]) => [facet, ...labels.split(SEPARATOR)]);
  const labels = given.getAll("facet").map(read).filter(Boolean).map(([facet, label]) => ["=" + facet, label]);
  state.branches = [...branches, ...labels];
}
function address() {
  const said = new URLSearchParams();
  if (state.section) said.set("s", state.section);
  if (state.metric) said.set("m", state.metric);
  if (state.shown && state.shown !== "one") said.set("r", state.shown);
  if (state.facet) said.set("by", state.facet);
  if (state.one) said.set("one", state.one);
  if (state.find) said.set("find", state.find);
  if (state.rows) said.set("rows", state.rows);
  for (const path of state.branches) {
    if (path[0].startsWith("=")) said.append("facet", path[0].slice(1) + ":" + path[1]);
    else said.append("branch", path[0] + ":" + path.slice(1).join(SEPARATOR));
  }
  writeSorts(said, state.sorts);
  return medprobe.build(format, "", said);
}
const link = () => location.origin + location.pathname + address();
const step = () => medprobe.push(address());
function arrive(route) {
  if (stamp && route.address === address()) { update(true); return; }  // back on this page, which shows it still
  readAddress(route.given);
  update();
}
function choose(changes) {
  Object.assign(state, changes);
  step();
  return update();
}

// ---- asking and showing
const drawn = new Map();
function show(area, html) {
  if (drawn.get(area) === html) { applySorts(area, state.sorts); return; }
  drawn.set(area, html);
  for (const [row, cell] of redraw(area, html, state.sorts))  // what stayed open may say something else by now
    ask("detail", { key: row.dataset.key }).then((said) => { cell.innerHTML = said; }, () => null);
  const set = area.querySelector("[role=radio][aria-checked=true]"), strip = set && set.parentElement;
  if (strip) strip.scrollLeft += set.getBoundingClientRect().left - strip.getBoundingClientRect().left - 8;  // on a phone the sets scroll
  const cite = area.querySelector(".cite:not([hidden])");
  if (cite) ask("cite", { link: link() }).then((said) => { cite.textContent = said; }, () => null);
}
async function update(quiet) {
  const number = ++asked;
  const slow = setTimeout(() => panel.classList.add("busy"), 150);
  try {
    const shown = await ask("view", { stamp: quiet ? stamp : null });
    if (number !== asked) return;
    if (shown.unchanged) return;
    show(panel, shown.html);
    root.querySelector(".heard").textContent = panel.querySelector(".finding").textContent;
    stamp = shown.stamp;
    Object.assign(state, shown.state);
    counts = shown.counts || {};
    say("");
    if (shown.tree !== treeKey) await loadTree(shown.tree);
    else drawTree();
    if (!quiet && root.offsetParent !== null) medprobe.rewrite(address());
    await loadBreakdown();
    if (shown.ready === false) setTimeout(() => { if (number === asked) { stamp = null; update(true); } }, 1500);
  } catch (error) {
    if (number === asked) say(error.message);
  } finally {
    clearTimeout(slow);
    if (number === asked) panel.classList.remove("busy");
  }
}
async function loadTree(key) {
  const { groups: told, facets: roots } = key === null ? { groups: [], facets: [] } : await ask("tree", { branches: [] });
  facets.of(roots);
  treeKey = key;
  const set = keyOf([state.section, Boolean(key)]);
  if (set !== treeSet) open.clear();  // news of the same set close no branch
  treeSet = set;
  groups = told.map((group) => ({ label: group.label, nodes: grow(group.nodes, [group.facet], null) }));
  counted = (node) => told.length && told[0].questions ? node.count + (node.count === 1 ? " question" : " questions") : "n " + node.count;
  for (const node of state.branches) for (let depth = 2; depth < node.length; depth++) open.add(keyOf(node.slice(0, depth)));
  drawSide();
}
const names = new Map();  // how branches are shown, where not by the source's label
const grow = (nodes, path, parent) => nodes.map(([source, count, children, shown]) => {
  const node = { label: shown || source, count, parent, path: [...path, source] };
  if (shown) names.set(keyOf(node.path), shown);
  node.children = grow(children, node.path, node);
  return node;
});
async function loadBreakdown() {
  const number = asked;
  const html = await ask("breakdown", { facet: state.facet, one: state.one });
  if (number !== asked) return;
  show(below, html);
}

// ---- the tree
const chosen = () => new Set(state.branches.map(keyOf));
const isUnder = (path, branch) => branch.length <= path.length && branch.every((part, at) => part === path[at]);
function stateOf(node) {
  if (state.branches.some((branch) => isUnder(node.path, branch))) return "true";
  return state.branches.some((branch) => isUnder(branch, node.path)) ? "mixed" : "false";
}
function toggle(node) {
  let branches = state.branches.filter((branch) => !isUnder(branch, node.path));
  if (stateOf(node) !== "true") {
    branches.push(node.path);
    for (let up = node.parent; up; up = up.parent) {  // all of a branch's branches are the branch itself
      const held = new Set(branches.map(keyOf));
      if (!up.children.every((child) => held.has(keyOf(child.path)))) break;
      branches = branches.filter((branch) => !isUnder(branch, up.path));
      branches.push(up.path);
    }
  } else {
    for (let here = node; here.parent; here = here.parent) {  // a ticked branch above becomes its other branches
      const above = state.branches.find((branch) => isUnder(here.parent.path, branch));
      if (!above) break;
      branches = branches.filter((branch) => keyOf(branch) !== keyOf(above));
      for (const sister of here.parent.children) if (sister !== here) branches.push(sister.path);
    }
  }
  state.branches = branches;
  drawTree();
  choose({ branches });
}
function drawSide() {
  const filter = side.querySelector(".filter"), wasOpen = filter ? filter.open : null;
  side.replaceChildren();
  if (!groups.length) { side.hidden = true; root.classList.add("alone"); return; }
  side.hidden = false; root.classList.remove("alone");
  const box = make("details", "filter");
  box.open = wasOpen === null ? !matchMedia("(max-width: 760px)").matches : wasOpen;
  box.append(make("h2", "ask", "What do you care about?"));
  const title = make("summary");
  const search = make("input", "search");
  search.type = "search"; search.value = query;
  search.placeholder = "Search the tree, e.g. " + groups[0].nodes[0].label;
  search.setAttribute("aria-label", "Search " + groups.map((group) => group.label.toLowerCase()).join(", "));
  search.addEventListener("input", () => { query = search.value; drawTree(); });
  const chips = make("div", "chips"), list = make("div", "tree");
  list.setAttribute("role", "tree");
  list.setAttribute("aria-multiselectable", "true");
  list.setAttribute("aria-label", "Lexical tree");
  list.addEventListener("keydown", onKey);
  const map = make("details", "lexical");
  map.open = mapOpen === null ? groups.some((group) => group.nodes.some((node) => node.children.length)) : mapOpen;  // a flat tree says what the facets say
  map.addEventListener("toggle", () => { mapOpen = map.open; });
  map.append(make("summary", "", "Lexical tree"), search, list);
  box.append(title, chips, facets.host, map);
  side.append(box);
  drawTree();
}
function drawTree() {
  const list = side.querySelector(".tree"), chips = side.querySelector(".chips");
  if (!list) return;
  drawChips(chips);
  facets.show(state.branches, counts);
  const shows = keyOf([treeKey, state.branches, [...open], query, current]);
  if (shows === treeShows && list.firstChild) return;
  treeShows = shows;
  const wanted = query.trim().toLowerCase(), had = list.contains(document.activeElement), scroll = list.scrollTop;
  rows = [];
  list.replaceChildren();
  let hidden = 0;
  const MOST = 400;
  const matches = (node) => node.label.toLowerCase().includes(wanted) || node.children.some(matches);
  const show = (node, level) => {
    if (wanted && !matches(node)) return;
    if (rows.length >= MOST) { hidden++; return; }
    const deep = wanted && node.children.some(matches);
    const isOpen = node.children.length > 0 && (deep || open.has(keyOf(node.path)));
    list.append(row(node, level, isOpen));
    if (isOpen) for (const child of node.children) show(child, level + 1);
  };
  for (const group of groups) {
    if (wanted && !group.nodes.some(matches)) continue;
    const heading = make("div", "heading", group.label);
    heading.setAttribute("role", "presentation");
    list.append(heading);
    for (const node of group.nodes) show(node, 1);
  }
  if (!rows.length) list.append(make("p", "fine", "No branch of that name."));
  if (hidden) list.append(make("p", "fine", hidden + " more: search on."));
  const at = rows.find((entry) => entry.key === current) || rows[0];
  if (at) { at.line.tabIndex = 0; if (had) at.line.focus({ preventScroll: true }); }
  list.scrollTop = scroll;
}
function row(node, level, isOpen) {
  const line = make("div", "branch"), key = keyOf(node.path), checked = stateOf(node);
  line.setAttribute("role", "treeitem");
  line.setAttribute("aria-level", level);
  line.setAttribute("aria-checked", checked);
  line.setAttribute("aria-label", node.label + ", " + counted(node));
  if (node.children.length) line.setAttribute("aria-expanded", isOpen);
  line.tabIndex = -1;
  line.style.setProperty("--level", level - 1);
  const arrow = make("span", "arrow", node.children.length ? (isOpen ? "▾" : "▸") : "");
  arrow.addEventListener("click", (event) => { event.stopPropagation(); if (node.children.length) { flip(node); } });
  line.append(arrow, make("span", "box"), make("span", "label", node.label), make("span", "count", node.count.toLocaleString("en")));
  line.addEventListener("click", () => { current = key; line.focus({ preventScroll: true }); toggle(node); });
  rows.push({ node, line, key, isOpen });
  return line;
}
function flip(node) {
  const key = keyOf(node.path);
  if (!open.delete(key)) open.add(key);
  current = key;
  drawTree();
}
function onKey(event) {
  const at = rows.findIndex((entry) => entry.line === document.activeElement);
  if (at < 0) return;
  const { node, isOpen, key } = rows[at];
  const go = (to) => { const next = rows[Math.min(Math.max(to, 0), rows.length - 1)]; rows[at].line.tabIndex = -1; next.line.tabIndex = 0; current = next.key; next.line.focus(); };
  switch (event.key) {
    case "ArrowDown": go(at + 1); break;
    case "ArrowUp": go(at - 1); break;
    case "Home": go(0); break;
    case "End": go(rows.length - 1); break;
    case "ArrowRight": if (node.children.length && !isOpen) flip(node); else if (isOpen) go(at + 1); break;
    case "ArrowLeft":
      if (isOpen && open.has(key)) flip(node);
      else if (node.parent) go(rows.findIndex((entry) => entry.node === node.parent));
      break;
    case " ": case "Enter": current = key; toggle(node); break;
    default: return;
  }
  event.preventDefault();
}
function drawChips(chips) {
  chips.replaceChildren();
  const summary = side.querySelector("summary"), [first] = state.branches;  // a closed choice says what is chosen
  if (first) summary.textContent = first.slice(1).join(" › ") + (state.branches.length > 1 ? " and " + (state.branches.length - 1) + " more" : "");
  else summary.textContent = "Choose " + groups.map((group) => group.label.toLowerCase()).join(", ");
  for (const path of state.branches.slice(0, 12)) {
    const steps = path[0].startsWith("=") ? [facets.name(path)] : path.slice(1).map((label, at) => names.get(keyOf(path.slice(0, at + 2))) || label);
    const chip = make("button", "chip", steps.join(" › ") + " ×");
    chip.type = "button";
    chip.setAttribute("aria-label", "Remove " + steps.join(SEPARATOR));
    chip.addEventListener("click", () => choose({ branches: state.branches.filter((other) => other !== path) }));
    chips.append(chip);
  }
  if (state.branches.length > 12) chips.append(make("span", "fine", "and " + (state.branches.length - 12) + " more"));
  if (state.branches.length) {
    const clear = make("button", "link", "clear");
    clear.type = "button";
    clear.addEventListener("click", () => choose({ branches: [] }));
    chips.append(clear);
  }
}

// ---- what is clicked in the panel
async function showDetail(button) {
  const asked = button.closest("tr"), next = asked.nextElementSibling, path = rowAt(asked);
  if (next && next.classList.contains("more-row")) { next.remove(); button.setAttribute("aria-expanded", "false"); return; }
  const said = await ask("detail", { key: asked.dataset.key });
  const row = root.querySelector(path);  // the table may have been drawn anew since the click
  if (row && row.querySelector(".more").getAttribute("aria-expanded") !== "true") openRow(row, []).innerHTML = said;
}
function changeSection(section) {
  const list = side.querySelector(".tree");
  if (list && section !== state.section) list.replaceChildren();  // its branches are another set's
  return choose({ section, branches: [], facet: null, one: null, find: "", rows: null, sorts: {} });
}
async function act(button) {
  const what = button.dataset.act;
  if (what === "link") {
    await copyLink(button, link());
  } else if (what === "cite") {
    const hidden = panel.querySelector(".cite").hidden, said = hidden ? await ask("cite", { link: link() }) : "";
    const box = panel.querySelector(".cite");
    box.textContent = said;
    box.hidden = !hidden;
  } else if (what === "svg" || what === "png") {
    await savePlot(button.closest("[data-plot]"), what, link(), [format, ...state.branches.map((path) => path.slice(1).join("-"))].join("-").replace(/[^A-Za-z0-9.-]+/g, "-").slice(0, 80));
  } else {
    saveFile(await ask("export", { as: what, of: button.dataset.of || "leaderboard", facet: state.facet, one: state.one }));
  }
}
root.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button || side.contains(button)) return;
  if (sortClicked(button, state.sorts)) {
    step();
    if (root.querySelector("[data-part]")) update();  // other rows are the first ones now: the server has them all
    return;
  }
  const done = button.dataset.section ? changeSection(button.dataset.section)
    : button.classList.contains("more") ? showDetail(button)
    : button.dataset.more ? choose({ rows: Number(button.dataset.more) })
    : button.dataset.act ? act(button) : null;
  if (done) done.catch((error) => say(error.message));
});
root.addEventListener("keydown", (event) => {  // the sets of questions are one choice: arrows go from one to the next
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches("[role=radio]")) return;
  const sets = [...event.target.parentElement.querySelectorAll("[role=radio]")];
  const next = sets[(sets.indexOf(event.target) + step + sets.length) % sets.length];
  event.preventDefault();
  next.focus();
  changeSection(next.dataset.section).catch((error) => say(error.message));
});
let typing = null;
root.addEventListener("input", (event) => {
  if (!event.target.matches("[data-find]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => {  // a word that is typed is one step, not one per letter
    Object.assign(state, { find: event.target.value.trim(), rows: null });
    medprobe.rewrite(address());
    update();
  }, 200);
});
root.addEventListener("change", (event) => {
  if (event.target.matches("[data-metric]")) choose({ metric: event.target.value });
  if (event.target.matches("[data-shown]")) choose({ shown: event.target.value });
  for (const name of ["facet", "one"]) {
    if (!event.target.matches("[data-" + name + "]")) continue;
    state[name] = event.target.value;
    delete state.sorts.breakdown;
    step();
    loadBreakdown().catch((error) => say(error.message));
  }
});

// ---- beginning, and news from the store
medprobe.register(format, arrive);
const news = setInterval(() => {
  if (!root.isConnected) clearInterval(news);
  else if (!document.hidden && root.offsetParent !== null) update(true);
}, 15000);
}
