// The choice of branches beside a benchmark's table: chips of what is chosen, the facets, and the lexical tree, with three states, by mouse
// and keyboard. `choose(branches)` is called for every new selection; `show` says what is selected now.
const SEPARATOR = " > ";
function medprobeTree(root, choose) {
const side = root.querySelector(".side"), open = new Set(), names = new Map();  // names: how branches are shown, where not by the source's label
let groups = [], rows = [], branches = [], query = "", current = null, mapOpen = null, loaded = null, set = null, drawn = null, counted = null, labels = "";
const facets = medprobeFacets((path, on) => {
  const others = branches.filter((branch) => keyOf(branch) !== keyOf(path));
  select(on ? [...others, path] : others);
});

function load({ groups: told, facets: roots }, key, ofSet) {
  facets.of(roots);
  if (ofSet !== set) open.clear();  // news of the same set close no branch
  [loaded, set] = [key, ofSet];
  groups = told.map((group) => ({ label: group.label, nodes: grow(group.nodes, [group.facet], null) }));
  labels = roots.map((facet) => facet.label.toLowerCase()).join(", ");
  counted = (node) => told.length && told[0].questions ? node.count + (node.count === 1 ? " question" : " questions") : "n " + node.count;
  drawSide();
}
const grow = (nodes, path, parent) => nodes.map(([source, count, children, shown]) => {
  const node = { label: shown || source, count, parent, path: [...path, source] };
  if (shown) names.set(keyOf(node.path), shown);
  node.children = grow(children, node.path, node);
  return node;
});
function show(selected, counts, total) {
  if (drawn === null) for (const path of selected) for (let depth = 2; depth < path.length; depth++) open.add(keyOf(path.slice(0, depth)));
  branches = selected;
  if (!side.firstChild) return;
  drawChips(total);
  facets.show(branches, counts);
  drawTree();
}
function select(selected) {
  branches = selected;
  choose(selected);
}
const isUnder = (path, branch) => branch.length <= path.length && branch.every((part, at) => part === path[at]);
function stateOf(node) {
  if (branches.some((branch) => isUnder(node.path, branch))) return "true";
  return branches.some((branch) => isUnder(branch, node.path)) ? "mixed" : "false";
}
function toggle(node) {
  let selected = branches.filter((branch) => !isUnder(branch, node.path));
  if (stateOf(node) !== "true") {
    selected.push(node.path);
    for (let up = node.parent; up; up = up.parent) {  // all of a branch's branches are the branch itself
      const held = new Set(selected.map(keyOf));
      if (!up.children.every((child) => held.has(keyOf(child.path)))) break;
      selected = selected.filter((branch) => !isUnder(branch, up.path));
      selected.push(up.path);
    }
  } else {
    for (let here = node; here.parent; here = here.parent) {  // a ticked branch above becomes its other branches
      const above = branches.find((branch) => isUnder(here.parent.path, branch));
      if (!above) break;
      selected = selected.filter((branch) => keyOf(branch) !== keyOf(above));
      for (const sister of here.parent.children) if (sister !== here) selected.push(sister.path);
    }
  }
  select(selected);  // the server is asked before the tree is drawn, so that both go on at once
  drawChips();
  drawTree();
}
function drawSide() {
  const filter = side.querySelector(".filter"), wasOpen = filter ? filter.open : null;
  side.replaceChildren();
  if (!labels) { side.hidden = true; root.classList.add("no-side"); return; }
  side.hidden = false; root.classList.remove("no-side");
  const box = makeNode("details", "filter");
  box.open = wasOpen === null ? !matchMedia("(max-width: 760px)").matches : wasOpen;
  box.append(makeNode("h2", "ask", "What do you care about?"));
  const title = makeNode("summary");
  const search = makeNode("input", "search");
  search.type = "search"; search.value = query;
  search.placeholder = "Search the tree";
  search.setAttribute("aria-label", "Search the lexical tree");
  search.addEventListener("input", () => { query = search.value; drawTree(); });
  const chips = makeNode("div", "chips"), list = makeNode("div", "tree");
  list.setAttribute("role", "tree");
  list.setAttribute("aria-multiselectable", "true");
  list.setAttribute("aria-label", "Lexical tree");
  list.addEventListener("keydown", onKey);
  const map = makeNode("details", "lexical");
  map.open = mapOpen ?? true;
  map.addEventListener("toggle", () => { mapOpen = map.open; });
  map.append(makeNode("summary", "", "Lexical tree"), search, list);
  box.append(title, chips, facets.host);
  if (groups.length) box.append(map);
  side.append(box);
  drawn = null;
}
function drawTree() {
  const list = side.querySelector(".tree");
  if (!list) return;
  const shows = keyOf([branches, [...open], query, current]);
  if (shows === drawn) return;
  drawn = shows;
  const wanted = query.trim().toLowerCase(), had = list.contains(document.activeElement), scroll = list.scrollTop;
  rows = [];
  list.replaceChildren();
  let hidden = 0;
  const MOST = 400;
  const matches = (node) => node.label.toLowerCase().includes(wanted) || node.children.some(matches);
  const add = (node, level) => {
    if (wanted && !matches(node)) return;
    if (rows.length >= MOST) { hidden++; return; }
    const deep = wanted && node.children.some(matches);
    const isOpen = node.children.length > 0 && (deep || open.has(keyOf(node.path)));
    list.append(row(node, level, isOpen));
    if (isOpen) for (const child of node.children) add(child, level + 1);
  };
  for (const group of groups) {
    if (wanted && !group.nodes.some(matches)) continue;
    const heading = makeNode("div", "heading", group.label);
    heading.setAttribute("role", "presentation");
    list.append(heading);
    for (const node of group.nodes) add(node, 1);
  }
  if (!rows.length) list.append(makeNode("p", "fine", "No matching branch." + near(wanted)));
  if (hidden) list.append(makeNode("p", "fine", hidden + " more: search on."));
  const at = rows.find((entry) => entry.key === current) || rows[0];
  if (at) { at.line.tabIndex = 0; if (had) at.line.focus({ preventScroll: true }); }
  list.scrollTop = scroll;
}
function near(wanted) {  // labels that begin as some word of it does
  const starts = wanted.split(/\s+/).filter((word) => word.length > 2).map((word) => word.slice(0, 3)), found = new Set();
  const look = (node) => { if (starts.some((start) => node.label.toLowerCase().split(/\s+/).some((word) => word.startsWith(start)))) found.add(node.label); node.children.forEach(look); };
  for (const group of groups) group.nodes.forEach(look);
  return found.size ? " Near: " + [...found].slice(0, 5).join(", ") + "." : "";
}
function invert() {  // of every facet and branch level in which something is chosen, what was not
  const flat = (nodes) => nodes.flatMap((node) => [node, ...flat(node.children)]), all = groups.flatMap((group) => flat(group.nodes));
  const chosen = new Set(branches.map(keyOf)), tops = new Set(branches.filter((path) => !path[0].startsWith("=")).map((path) => keyOf(path.slice(0, -1))));
  select([...facets.inverted(branches), ...all.map((node) => node.path).filter((path) => tops.has(keyOf(path.slice(0, -1))) && !chosen.has(keyOf(path)))]);
}
function row(node, level, isOpen) {
  const line = makeNode("div", "branch"), key = keyOf(node.path), checked = stateOf(node);
  line.setAttribute("role", "treeitem");
  line.setAttribute("aria-level", level);
  line.setAttribute("aria-checked", checked);
  line.setAttribute("aria-label", node.label + ", " + counted(node));
  if (node.children.length) line.setAttribute("aria-expanded", isOpen);
  line.tabIndex = -1;
  line.style.setProperty("--level", level - 1);
  const arrow = makeNode("span", "arrow", node.children.length ? (isOpen ? "▾" : "▸") : "");
  arrow.addEventListener("click", (event) => { event.stopPropagation(); if (node.children.length) { flip(node); } });
  line.append(arrow, makeNode("span", "box"), makeNode("span", "label", node.label), makeNode("span", "count", node.count.toLocaleString("en")));
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
function drawChips(total) {
  const chips = side.querySelector(".chips"), summary = side.querySelector("summary"), [first] = branches;  // a closed choice says what is chosen
  if (first) summary.textContent = first.slice(1).join(" › ") + (branches.length > 1 ? " and " + (branches.length - 1) + " more" : "");
  else summary.textContent = "Choose " + labels;
  chips.replaceChildren();
  for (const path of branches.slice(0, 12)) {
    const steps = path[0].startsWith("=") ? [facets.name(path)] : path.slice(1).map((label, at) => names.get(keyOf(path.slice(0, at + 2))) || label);
    const chip = makeNode("button", "chip", steps.join(" › ") + " ×");
    chip.type = "button";
    chip.setAttribute("aria-label", "Remove " + steps.join(SEPARATOR));
    chip.addEventListener("click", () => select(branches.filter((other) => other !== path)));
    chips.append(chip);
  }
  if (branches.length > 12) chips.append(makeNode("span", "fine", "and " + (branches.length - 12) + " more"));
  if (branches.length) {
    const clear = makeNode("button", "link", "clear");
    clear.type = "button";
    clear.addEventListener("click", () => select([]));
    const other = makeNode("button", "link", "invert");
    other.type = "button";
    other.addEventListener("click", invert);
    chips.append(clear, other);
    if (total) chips.append(makeNode("span", "fine", total.toLocaleString("en") + (total === 1 ? " question" : " questions")));
  }
}
return {
  load, show,
  key: () => loaded,
  clear: () => { drawn = null; side.querySelector(".tree")?.replaceChildren(); },
  holds: (node) => side.contains(node),
};
}
