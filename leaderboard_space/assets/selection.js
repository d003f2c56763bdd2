// The selection of questions beside a benchmark's table: chips for what is selected, and a searchable tree of checkboxes with all facets,
// their labels and branches. A selected path is [facet, label, ...]; paths of one facet are united, those of different facets intersected.
// `chosen(branches)` is called for every new selection. `show` sets the current selection, the number of questions of each path given the
// selection in the other facets (counts: facet -> numbers in the order of the tree), and the address of the selected questions.
const SEPARATOR = " > ";
const keyOf = (path) => JSON.stringify(path);
function makeNode(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function medprobeSelection(root, chosen) {
const side = root.querySelector(".side"), open = new Set(), opened = new Map(), MOST = 400, FEW_MISSING = 3;
let roots = [], byKey = new Map(), branches = [], counts = {}, query = "", loaded = null;

function load(facets, key) {  // open branches stay open when the set changes, or another one is shown
  [loaded, byKey] = [key, new Map()];
  let order = 0;
  const grow = (nodes, path, parent) => nodes.map(([source, count, children, shown]) => {
    const node = { label: shown || source, count, parent, path: [...path, source], order: order++ };
    node.children = grow(children, node.path, node);
    byKey.set(keyOf(node.path), node);
    return node;
  });
  roots = facets.map(({ facet, label, nodes }) => { order = 0; return { facet, label, nodes: grow(nodes, [facet], null) }; });
  drawFrame();
}
function show(selected, within, total, cases) {
  for (const path of selected) for (let depth = 2; depth < path.length; depth++) open.add(keyOf(path.slice(0, depth)));
  [branches, counts] = [selected, within];
  if (!side.firstChild) return;
  drawChips(total, cases);
  draw();
}
const countOf = (node) => counts[node.path[0]]?.[node.order] ?? node.count;
function choose(selected) {  // update at once, so that the next click adds to this selection
  branches = selected;
  chosen(selected);
}
const isUnder = (path, branch) => branch.length <= path.length && branch.every((part, at) => part === path[at]);
function stateOf(node) {
  if (branches.some((branch) => isUnder(node.path, branch))) return "all";
  return branches.some((branch) => isUnder(branch, node.path)) ? "some" : "none";
}
function toggle(node) {
  let selected = branches.filter((branch) => !isUnder(branch, node.path));
  if (stateOf(node) !== "all") {
    selected.push(node.path);
    for (let up = node.parent; up; up = up.parent) {  // if all children are selected, select the parent instead
      const held = new Set(selected.map(keyOf));
      if (!up.children.every((child) => held.has(keyOf(child.path)))) break;
      selected = [...selected.filter((branch) => !isUnder(branch, up.path)), up.path];
    }
  } else {
    for (let here = node; here.parent; here = here.parent) {  // replace a selected ancestor by its other descendants
      const above = branches.find((branch) => isUnder(here.parent.path, branch));
      if (!above) break;
      selected = selected.filter((branch) => keyOf(branch) !== keyOf(above));
      selected.push(...here.parent.children.filter((sister) => sister !== here).map((sister) => sister.path));
    }
  }
  choose(selected);
}
function invert() {  // at every level with a selection, select the labels that were not selected
  const ticked = new Set(branches.map(keyOf)), levels = new Set(branches.map((path) => keyOf(path.slice(0, -1))));
  choose([...byKey].filter(([key, { path }]) => levels.has(keyOf(path.slice(0, -1))) && !ticked.has(key)).map(([, { path }]) => path));
}
const narrow = matchMedia("(max-width: 1100px)");
narrow.addEventListener("change", () => side.querySelector(".filter")?.toggleAttribute("open", !narrow.matches));
function drawFrame() {  // without the labels: there may be thousands, so they are drawn when their facet is opened
  const before = side.querySelector(".filter");
  side.hidden = !roots.length;
  root.classList.toggle("no-side", !roots.length);
  const box = makeNode("details", "filter"), search = makeNode("input", "search");
  box.open = before ? before.open : !narrow.matches;
  search.type = "search"; search.value = query;
  search.placeholder = "Search labels";
  search.setAttribute("aria-label", "Search labels");
  search.addEventListener("input", () => { query = search.value; draw(); });
  box.append(makeNode("summary"), makeNode("h2", "ask", "What do you care about?"), makeNode("p", "fine chosen"), makeNode("div", "chips"), search, makeNode("p", "fine none"), makeNode("div", "facets"));
  for (const one of roots) {
    Object.assign(one, { box: makeNode("details", "facet"), many: makeNode("small"), list: makeNode("div", "values") });
    const title = makeNode("summary", "", one.label);
    title.append(one.many);
    one.list.setAttribute("role", "group");
    one.list.setAttribute("aria-label", one.label);
    one.box.addEventListener("toggle", () => { if (!query) opened.set(one.label, one.box.open); draw(); });
    one.box.append(title, one.list);
    if (!one.nodes.length) one.box.append(makeNode("p", "fine", "The paper prints no scores by " + one.label.toLowerCase() + "; measured results will have them."));
    box.lastChild.append(one.box);
  }
  side.replaceChildren(...(roots.length ? [box] : []));
}
function draw() {
  const wanted = query.trim().toLowerCase(), focus = side.contains(document.activeElement) && document.activeElement.dataset.key;
  const matches = (node) => node.label.toLowerCase().includes(wanted) || node.children.some(matches);
  for (const { label, nodes, box, many, list } of roots) {
    const on = nodes.filter((node) => stateOf(node) !== "none").length;
    many.textContent = on ? on + " of " + nodes.length : nodes.length;
    box.hidden = wanted !== "" && !nodes.some(matches);
    const isOpen = wanted !== "" || (opened.get(label) ?? (on > 0 || label === roots[0].label));
    if (box.open !== isOpen) box.open = isOpen;
    if (!isOpen || box.hidden) continue;
    const rows = [];
    let hidden = 0;
    const add = (node, level) => {
      if (wanted && !matches(node)) return;
      if (rows.length >= MOST) { hidden++; return; }
      const unfolds = node.children.length > 0 && (wanted ? node.children.some(matches) : open.has(keyOf(node.path)));
      rows.push(row(node, level, unfolds));
      if (unfolds) for (const child of node.children) add(child, level + 1);
    };
    for (const node of nodes) add(node, 0);
    if (hidden) rows.push(makeNode("p", "fine", hidden + " more: search on."));
    list.replaceChildren(...rows);
  }
  side.querySelector(".none").textContent = roots.some(({ nodes }) => nodes.some(matches)) ? "" : "No matching label." + near(wanted);
  if (focus) side.querySelector("[data-key=" + CSS.escape(focus) + "]")?.focus({ preventScroll: true });
}
function row(node, level, unfolds) {
  const count = countOf(node), line = makeNode("div", "branch"), label = makeNode("label"), input = makeNode("input"), state = stateOf(node), key = keyOf(node.path);
  line.style.setProperty("--level", level);
  if (node.children.length) {
    const arrow = makeNode("button", "arrow", unfolds ? "▾" : "▸");
    arrow.type = "button";
    arrow.dataset.key = "open " + key;
    arrow.setAttribute("aria-label", "Branches of " + node.label);
    arrow.setAttribute("aria-expanded", unfolds);
    arrow.addEventListener("click", () => { if (!open.delete(key)) open.add(key); draw(); });
    line.append(arrow);
  }
  Object.assign(input, { type: "checkbox", checked: state === "all", indeterminate: state === "some" });
  input.dataset.key = key;
  input.addEventListener("change", () => toggle(node));
  label.classList.toggle("empty", !count && state === "none");
  label.append(input, makeNode("span", "label", node.label), makeNode("span", "count", count.toLocaleString("en")));
  line.append(label);
  return line;
}
function near(wanted) {  // labels that start like one of its words
  const starts = wanted.split(/\s+/).filter((word) => word.length > 2).map((word) => word.slice(0, 3));
  const labels = [...byKey.values()].map((node) => node.label).filter((label) => label.toLowerCase().split(/\s+/).some((word) => starts.some((start) => word.startsWith(start))));
  return labels.length ? " Near: " + [...new Set(labels)].slice(0, 5).join(", ") + "." : "";
}
function nameOf(path) {  // display name of a path: a label with its facet, a branch with its ancestors
  const shown = path.slice(1).map((label, at) => byKey.get(keyOf(path.slice(0, at + 2)))?.label || label);
  return shown.length > 1 ? shown.join(" › ") : rootOf(path).label + ": " + shown;
}
const rootOf = (path) => roots.find((one) => one.facet === path[0]) || { label: path[0], nodes: [] };
function chipsOf() {  // the selection in few words, as [name, paths]: "all but" if nearly all labels of a level are selected
  const named = [], levels = Map.groupBy(branches, (path) => keyOf(path.slice(0, -1)));
  for (const paths of levels.values()) {
    const above = paths[0].slice(0, -1), ticked = new Set(paths.map(keyOf));
    const level = (above.length > 1 ? byKey.get(keyOf(above))?.children : rootOf(above).nodes) || [];
    const missing = level.filter((node) => !ticked.has(keyOf(node.path)));
    const isNearlyAll = missing.length && missing.length <= FEW_MISSING && paths.length > missing.length && level.length > FEW_MISSING;
    const where = above.length > 1 ? nameOf(above) : rootOf(above).label;
    if (isNearlyAll) named.push([where + ": all but " + missing.map((node) => node.label).join(", "), paths]);
    else named.push(...paths.map((path) => [nameOf(path), [path]]));
  }
  return named;
}
function drawChips(total, cases) {
  const chips = side.querySelector(".chips"), labels = roots.map(({ label }) => label.toLowerCase()).join(", "), named = chipsOf();
  const button = (className, text, act) => Object.assign(makeNode("button", className, text), { type: "button", onclick: act });
  side.querySelector("summary").textContent = named.length  // a closed panel states the selection
    ? named[0][0] + (named.length > 1 ? " and " + (named.length - 1) + " more" : "") : "Choose " + labels;
  chips.replaceChildren(...named.slice(0, 12).map(([name, paths]) => {
    const chip = button("chip", name + " ×", () => choose(branches.filter((other) => !paths.includes(other))));
    chip.setAttribute("aria-label", "Remove " + name);
    return chip;
  }));
  if (named.length > 12) chips.append(makeNode("span", "fine", "and " + (named.length - 12) + " more"));
  if (!branches.length) chips.append(makeNode("span", "fine", "Of one facet any of the labels, of several facets all."));
  side.querySelector(".chosen").replaceChildren(
    branches.length ? total.toLocaleString("en") + (total === 1 ? " question" : " questions") : "All questions",
    ...(cases ? [Object.assign(makeNode("a", "link", "show these questions"), { href: cases })] : []),
    ...(branches.length ? [button("link", "clear", () => choose([])), button("link", "invert", invert)] : []));
}
return { load, show, key: () => loaded };
}
