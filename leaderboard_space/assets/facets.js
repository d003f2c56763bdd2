// The facets of a benchmark as roots of their own, each with a search: any of the labels of a facet, and all of the facets that something
// is chosen of. A choice is a path ["=facet", label]. Counts follow what is chosen in the other facets and in the tree.
const keyOf = (path) => JSON.stringify(path);
function makeNode(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function medprobeFacets(choose) {
const host = document.createElement("div");
host.className = "facets";
let facets = [], chosen = new Set(), counts = {};
const queries = new Map(), opened = new Map();
const LONG = 8;

function frame(facet) {  // all of a facet but its labels, of which there may be hundreds: these are made when it is opened
  const box = makeNode("details", "facet"), title = makeNode("summary", "", facet.label), list = makeNode("div", "values"), name = facet.label.toLowerCase();
  Object.assign(facet, { box, list, many: makeNode("small"), none: makeNode("p", "fine", "No matching " + name + "."), rows: null });
  box.dataset.facet = facet.facet;
  box.open = opened.get(facet.facet) || false;
  box.addEventListener("toggle", () => { opened.set(facet.facet, box.open); follow(facet); });
  title.append(facet.many);
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", facet.label);
  box.append(title);
  if (!facet.values.length) box.append(makeNode("p", "fine", "The paper prints no scores by " + name + "; measured results will have them."));
  if (facet.values.length > LONG) {
    const search = makeNode("input", "of-facet");
    search.type = "search";
    search.placeholder = "Search " + name;
    search.setAttribute("aria-label", "Search " + name);
    search.value = queries.get(facet.facet) || "";
    search.addEventListener("input", () => { queries.set(facet.facet, search.value); follow(facet); });
    box.append(search);
  }
  box.append(list);
  return box;
}
function row(value) {
  const box = makeNode("label"), input = makeNode("input"), many = makeNode("span", "count");
  input.type = "checkbox";
  input.addEventListener("change", () => choose(value.path, input.checked));
  box.append(input, makeNode("span", "label", value.label), many);
  return { box, input, many };
}
function follow(facet) {  // what is chosen, the counts and the search change what stands there: nothing that has the focus or is scrolled moves
  const isOn = facet.values.map((value) => chosen.has(keyOf(value.path))), on = isOn.filter(Boolean).length, now = counts[facet.facet];
  if (!opened.has(facet.facet)) facet.box.open = on > 0 || facet === facets[0];
  facet.many.textContent = on ? on + " of " + facet.values.length : String(facet.values.length);
  if (!facet.box.open) return;
  if (!facet.rows) {
    facet.rows = facet.values.map(row);
    facet.list.append(...facet.rows.map(({ box }) => box), facet.none);
  }
  const wanted = (queries.get(facet.facet) || "").trim().toLowerCase();
  let left = 0;
  facet.values.forEach((value, at) => {
    const { box, input, many } = facet.rows[at], count = now ? now[at] : value.count, said = count.toLocaleString("en");
    input.checked = isOn[at];
    if (many.textContent !== said) many.textContent = said;
    box.classList.toggle("empty", !count && !isOn[at]);
    box.hidden = wanted !== "" && !value.label.toLowerCase().includes(wanted);
    left += !box.hidden;
  });
  facet.none.hidden = left > 0;
}
return {
  host,
  name: (path) => {  // how a chosen label is shown: with its facet
    const facet = facets.find((one) => "=" + one.facet === path[0]);
    const value = facet && facet.values.find((one) => one.path[1] === path[1]);
    return (facet ? facet.label : path[0].slice(1)) + ": " + (value ? value.label : path[1]);
  },
  of: (told) => {
    facets = told.map((facet) => ({
      facet: facet.facet, label: facet.label,
      values: facet.nodes.map(([source, count, , shown]) => ({ path: ["=" + facet.facet, source], label: shown || source, count })),
    }));
    host.replaceChildren(...facets.map(frame));
  },
  inverted: (branches) => {
    const on = new Set(branches.map(keyOf));
    return facets.filter((facet) => branches.some((path) => path[0] === "=" + facet.facet)).flatMap((facet) => facet.values.map((value) => value.path).filter((path) => !on.has(keyOf(path))));
  },
  show: (branches, found) => {
    chosen = new Set(branches.filter((path) => path[0].startsWith("=")).map(keyOf));
    counts = found || {};
    facets.forEach(follow);
  },
};
}
