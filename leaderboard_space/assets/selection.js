// The choice of questions beside a benchmark's table: chips of what is chosen, the facets, and the lexical tree, all of checkboxes with one
// search. A choice is a path: ["=facet", label], or a branch [facet, label, label ...]. `chosen(branches)` is called for every new
// selection; `show` says what is selected now, and how many questions each label of a facet has within what is chosen otherwise.
const SEPARATOR = " > ";
const keyOf = (path) => JSON.stringify(path);
function makeNode(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function medprobeSelection(root, chosen) {
const side = root.querySelector(".side"), open = new Set(), opened = new Map(), MOST = 400;
let roots = [], byKey = new Map(), branches = [], counts = {}, query = "", loaded = null;

function load({ groups, facets }, key) {  // what is open stays open, in news of the set and in another set
  [loaded, byKey] = [key, new Map()];
  const grow = (nodes, path, parent) => nodes.map(([source, count, children, shown]) => {
    const node = { label: shown || source, count, parent, path: [...path, source] };
    node.children = grow(children, node.path, node);
    byKey.set(keyOf(node.path), node);
    return node;
  });
  roots = facets.map(({ facet, label, nodes }) => ({ facet, label, nodes: grow(nodes, ["=" + facet], null) }));
  roots.push(...groups.map(({ facet, label, nodes }) => ({ label: "Lexical tree by " + label.toLowerCase(), nodes: grow(nodes, [facet], null) })));
  drawFrame();
}
function show(selected, found, total) {
  for (const path of selected) for (let depth = 2; depth < path.length; depth++) open.add(keyOf(path.slice(0, depth)));
  [branches, counts] = [selected, found];
  if (!side.firstChild) return;
  drawChips(total);
  draw();
}
function choose(selected) {  // at once, so that the next click adds to it
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
    for (let up = node.parent; up; up = up.parent) {  // all of a branch's branches are the branch itself
      const held = new Set(selected.map(keyOf));
      if (!up.children.every((child) => held.has(keyOf(child.path)))) break;
      selected = [...selected.filter((branch) => !isUnder(branch, up.path)), up.path];
    }
  } else {
    for (let here = node; here.parent; here = here.parent) {  // a ticked branch above becomes its other branches
      const above = branches.find((branch) => isUnder(here.parent.path, branch));
      if (!above) break;
      selected = selected.filter((branch) => keyOf(branch) !== keyOf(above));
      selected.push(...here.parent.children.filter((sister) => sister !== here).map((sister) => sister.path));
    }
  }
  choose(selected);
}
function invert() {  // of every facet and branch level in which something is chosen, what was not
  const ticked = new Set(branches.map(keyOf)), levels = new Set(branches.map((path) => keyOf(path.slice(0, -1))));
  choose([...byKey].filter(([key, { path }]) => levels.has(keyOf(path.slice(0, -1))) && !ticked.has(key)).map(([, { path }]) => path));
}
const narrow = matchMedia("(max-width: 1100px)");
narrow.addEventListener("change", () => side.querySelector(".filter")?.toggleAttribute("open", !narrow.matches));
function drawFrame() {  // all but the labels, of which there may be thousands: these are made where they are looked at
  const before = side.querySelector(".filter");
  side.hidden = !roots.length;
  root.classList.toggle("no-side", !roots.length);
  const box = makeNode("details", "filter"), search = makeNode("input", "search");
  box.open = before ? before.open : !narrow.matches;
  search.type = "search"; search.value = query;
  search.placeholder = "Search labels";
  search.setAttribute("aria-label", "Search labels");
  search.addEventListener("input", () => { query = search.value; draw(); });
  box.append(makeNode("summary"), makeNode("h2", "ask", "What do you care about?"), makeNode("div", "chips"), search, makeNode("p", "fine none"));
  for (const one of roots) {
    Object.assign(one, { box: makeNode("details", "facet"), many: makeNode("small"), list: makeNode("div", "values") });
    const title = makeNode("summary", "", one.label);
    title.append(one.many);
    one.list.setAttribute("role", "group");
    one.list.setAttribute("aria-label", one.label);
    one.box.addEventListener("toggle", () => { if (!query) opened.set(one.label, one.box.open); draw(); });
    one.box.append(title, one.list);
    if (!one.nodes.length) one.box.append(makeNode("p", "fine", "The paper prints no scores by " + one.label.toLowerCase() + "; measured results will have them."));
    box.append(one.box);
  }
  side.replaceChildren(...(roots.length ? [box] : []));
}
function draw() {
  const wanted = query.trim().toLowerCase(), focus = side.contains(document.activeElement) && document.activeElement.dataset.key;
  const matches = (node) => node.label.toLowerCase().includes(wanted) || node.children.some(matches);
  for (const { facet, label, nodes, box, many, list } of roots) {
    const on = nodes.filter((node) => stateOf(node) !== "none").length;
    many.textContent = on ? on + " of " + nodes.length : nodes.length;
    box.hidden = wanted !== "" && !nodes.some(matches);
    const isOpen = wanted !== "" || (opened.get(label) ?? (on > 0 || !facet || label === roots[0].label));
    if (box.open !== isOpen) box.open = isOpen;
    if (!isOpen || box.hidden) continue;
    const rows = [];
    let hidden = 0;
    const add = (node, level, count) => {
      if (wanted && !matches(node)) return;
      if (rows.length >= MOST) { hidden++; return; }
      const unfolds = node.children.length > 0 && (wanted ? node.children.some(matches) : open.has(keyOf(node.path)));
      rows.push(row(node, level, count, unfolds));
      if (unfolds) for (const child of node.children) add(child, level + 1, child.count);
    };
    nodes.forEach((node, at) => add(node, 0, counts[facet] ? counts[facet][at] : node.count));
    if (hidden) rows.push(makeNode("p", "fine", hidden + " more: search on."));
    list.replaceChildren(...rows);
  }
  side.querySelector(".none").textContent = roots.some(({ nodes }) => nodes.some(matches)) ? "" : "No matching label." + near(wanted);
  if (focus) side.querySelector("[data-key=" + CSS.escape(focus) + "]")?.focus({ preventScroll: true });
}
function row(node, level, count, unfolds) {
  const line = makeNode("div", "branch"), label = makeNode("label"), input = makeNode("input"), state = stateOf(node), key = keyOf(node.path);
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
function near(wanted) {  // labels that begin as some word of it does
  const starts = wanted.split(/\s+/).filter((word) => word.length > 2).map((word) => word.slice(0, 3));
  const labels = [...byKey.values()].map((node) => node.label).filter((label) => label.toLowerCase().split(/\s+/).some((word) => starts.some((start) => word.startsWith(start))));
  return labels.length ? " Near: " + [...new Set(labels)].slice(0, 5).join(", ") + "." : "";
}
function nameOf(path) {  // how a choice is shown: a label with its facet, a branch with those above it
  const facet = roots.find((one) => "=" + one.facet === path[0]), shown = (upTo) => byKey.get(keyOf(path.slice(0, upTo + 2)))?.label || path[upTo + 1];
  return facet ? facet.label + ": " + shown(0) : path.slice(1).map((_, at) => shown(at)).join(" › ");
}
function drawChips(total) {
  const chips = side.querySelector(".chips"), labels = roots.filter(({ facet }) => facet).map(({ label }) => label.toLowerCase()).join(", ");
  const button = (className, text, act) => Object.assign(makeNode("button", className, text), { type: "button", onclick: act });
  side.querySelector("summary").textContent = branches.length  // a closed choice says what is chosen
    ? nameOf(branches[0]) + (branches.length > 1 ? " and " + (branches.length - 1) + " more" : "") : "Choose " + labels;
  chips.replaceChildren(...branches.slice(0, 12).map((path) => {
    const chip = button("chip", nameOf(path) + " ×", () => choose(branches.filter((other) => other !== path)));
    chip.setAttribute("aria-label", "Remove " + nameOf(path));
    return chip;
  }));
  if (branches.length > 12) chips.append(makeNode("span", "fine", "and " + (branches.length - 12) + " more"));
  if (!branches.length) return;
  chips.append(button("link", "clear", () => choose([])), button("link", "invert", invert));
  if (total) chips.append(makeNode("span", "fine", total.toLocaleString("en") + (total === 1 ? " question" : " questions")));
}
return { load, show, key: () => loaded };
}
