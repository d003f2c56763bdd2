// The facets of a benchmark as roots of their own, each with a search: any of the labels of a facet, and all of the facets that something
// is chosen of. A choice is a path ["=facet", label]. Counts follow what is chosen in the other facets and in the tree.
function medprobeFacets(choose) {
const host = document.createElement("div");
host.className = "facets";
let facets = [], chosen = new Set(), counts = {};
const queries = new Map(), opened = new Map();
const keyOf = (path) => JSON.stringify(path);
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const LONG = 8;

function drawFacet(facet, at) {
  const box = make("details", "facet"), own = facet.values.filter((value) => chosen.has(keyOf(value.path))).length;
  box.dataset.facet = facet.facet;
  box.open = opened.has(facet.facet) ? opened.get(facet.facet) : own > 0 || at === 0;
  box.addEventListener("toggle", () => opened.set(facet.facet, box.open));
  const title = make("summary", "", facet.label);
  title.append(make("small", "", own ? own + " of " + facet.values.length : String(facet.values.length)));
  const list = make("div", "values");
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", facet.label);
  box.append(title);
  if (facet.values.length > LONG) {
    const search = make("input", "of-facet");
    search.type = "search";
    search.placeholder = "Search " + facet.label.toLowerCase();
    search.setAttribute("aria-label", "Search " + facet.label.toLowerCase());
    search.value = queries.get(facet.facet) || "";
    search.dataset.key = "search " + facet.facet;
    search.addEventListener("input", () => { queries.set(facet.facet, search.value); drawValues(facet, list); });
    box.append(search);
  }
  box.append(list);
  drawValues(facet, list);
  return box;
}
function drawValues(facet, list) {
  const wanted = (queries.get(facet.facet) || "").trim().toLowerCase(), now = counts[facet.facet];
  const rows = facet.values.map((value, at) => ({ ...value, count: now ? now[at] : value.count }))
    .filter((value) => !wanted || value.label.toLowerCase().includes(wanted)).map((value) => {
      const row = make("label", value.count || chosen.has(keyOf(value.path)) ? "" : "empty"), input = make("input");
      input.type = "checkbox";
      input.checked = chosen.has(keyOf(value.path));
      input.dataset.key = keyOf(value.path);
      input.addEventListener("change", () => choose(value.path, input.checked));
      const many = make("span", "count", value.count.toLocaleString("en"));
      row.append(input, make("span", "label", value.label), many);
      return row;
    });
  list.replaceChildren(...(rows.length ? rows : [make("p", "fine", "No " + facet.label.toLowerCase() + " of that name.")]));
}
function draw() {
  const had = host.contains(document.activeElement) ? document.activeElement.dataset.key : null, typed = had && document.activeElement.selectionStart;
  const scrolls = new Map([...host.querySelectorAll(".facet")].map((box) => [box.dataset.facet, box.querySelector(".values").scrollTop]));
  host.replaceChildren(...facets.map(drawFacet));
  for (const box of host.querySelectorAll(".facet")) box.querySelector(".values").scrollTop = scrolls.get(box.dataset.facet) || 0;
  const again = had && [...host.querySelectorAll("input")].find((input) => input.dataset.key === had);
  if (again) again.focus({ preventScroll: true });
  if (again && again.type === "search") again.setSelectionRange(typed, typed);
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
  },
  show: (branches, found) => {
    chosen = new Set(branches.filter((path) => path[0].startsWith("=")).map(keyOf));
    counts = found || {};
    draw();
  },
};
}
