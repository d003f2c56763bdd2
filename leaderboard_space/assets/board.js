// The page of one benchmark: requests from the server what a selection changes, and keeps its state in the address.
// `element` is the component. See also: choosing questions (selection.js).
// Text from the store reaches the page only as HTML escaped by the server, or as textContent set here.
function medprobeBenchmark(element) {
const root = element.querySelector(".mp");
const panel = root.querySelector(".panel"), below = root.querySelector(".breakdown");
const format = root.dataset.format, server = medprobe.server(format);
let state = { section: null, metric: null, branches: [], shown: null, facet: null, one: null, all: null, sorts: {} };
let stamp = null, asked = 0, askedBelow = 0;
const tree = medprobeSelection(root, (branches) => choose({ branches }));

const say = (line) => {
  let note = root.querySelector(".failure");
  if (!note) { note = makeNode("p", "failure"); note.setAttribute("role", "alert"); root.prepend(note); }
  note.textContent = line;
  note.hidden = !line;
};
async function ask(name, extra) {
  let answer;
  try {
    answer = await server[name]({ format, section: state.section, metric: state.metric, branches: state.branches, shown: state.shown, all: state.all, ...extra });
  } catch (error) {
    throw new Error("The server did not answer; what you see may be out of date.");
  }
  if (!answer || "error" in answer) throw new Error(answer && answer.error ? answer.error : "The server gave no answer.");
  return answer.ok;
}

// ---- the address: #/b/benchmark?s=section&m=metric&r=results&by=facet&one=result&all=yes&branch=facet:Label > Label&facet=facet:Label&sort=table:d:column
function readAddress(given) {
  state.section = given.get("s"); state.metric = given.get("m"); state.shown = given.get("r"); state.facet = given.get("by"); state.one = given.get("one"); state.all = given.get("all");
  state.sorts = readSorts(given);
  const read = (said) => { const at = said.indexOf(":"); return at < 1 ? null : [said.slice(0, at), said.slice(at + 1)]; };
  const branches = given.getAll("branch").map(read).filter(Boolean).map(([facet, labels]) => [facet, ...labels.split(SEPARATOR)]);
  state.branches = [...branches, ...given.getAll("facet").map(read).filter(Boolean)];
}
function writeBranches(said) {
  for (const path of state.branches) said.append(path.length > 2 ? "branch" : "facet", path[0] + ":" + path.slice(1).join(SEPARATOR));
}
function casesAddress(set) {  // address of the selected questions on Cases, if any answers are known
  const said = new URLSearchParams({ set });
  writeBranches(said);
  return medprobe.build("cases", "", said);
}
function address() {
  const said = new URLSearchParams();
  if (state.section) said.set("s", state.section);
  if (state.metric) said.set("m", state.metric);
  if (state.shown && state.shown !== "one") said.set("r", state.shown);
  if (state.facet) said.set("by", state.facet);
  if (state.one) said.set("one", state.one);
  if (state.all) said.set("all", state.all);
  writeBranches(said);
  writeSorts(said, state.sorts);
  return medprobe.build(format, "", said);
}
const link = () => location.origin + location.pathname + address();
const step = () => medprobe.push(address());
function arrive(route) {
  if (stamp && route.address === address()) { update(true); return; }  // the visitor has returned, and the page still shows this state
  readAddress(route.given);
  settle(root);
  update();
}
function choose(changes) {
  Object.assign(state, changes);
  step();
  return update();
}

// ---- requests, and drawing their results
const drawn = new Map();
function show(area, html) {
  if (drawn.get(area) === html) { applySorts(area, state.sorts); return; }
  drawn.set(area, html);
  for (const [row, cell] of redraw(area, html, state.sorts))  // details that stayed open may have changed
    ask("detail", { key: row.dataset.key }).then((said) => { cell.innerHTML = said; }, () => null);
  const set = area.querySelector(".pill:has(:checked)"), strip = set && set.parentElement;
  if (strip) strip.scrollLeft += set.getBoundingClientRect().left - strip.getBoundingClientRect().left - 8;  // on a phone the list of sets scrolls
  const cite = area.querySelector(".cite:not([hidden])");
  if (cite) ask("cite", { link: link() }).then((said) => { cite.textContent = said; }, () => null);
}
async function update(quiet) {
  const number = quiet ? asked : ++asked;  // polling must not cancel a request by the visitor
  const slow = setTimeout(() => panel.classList.toggle("busy", !quiet), 150);  // polling does not dim the page
  try {
    const shown = await ask("view", { stamp: quiet ? stamp : null });
    if (number !== asked) return;
    say("");
    if (shown.unchanged) return;
    const facets = shown.tree === tree.key() ? null : shown.tree === null ? [] : await ask("tree", { branches: [], section: shown.state.section });
    if (number !== asked) return;
    clearTimeout(slow);  // the rest is drawn below the table
    panel.classList.remove("busy");
    show(panel, shown.html);  // draw the labels together with the table: both must belong to the same set
    root.querySelector(".heard").textContent = panel.querySelector(".finding").textContent;
    Object.assign(state, shown.state);
    if (facets) tree.load(facets, shown.tree);
    tree.show(state.branches, shown.counts || {}, shown.selected, shown.cases && casesAddress(shown.cases));
    if (!quiet && root.offsetParent !== null) medprobe.rewrite(address());
    await loadBreakdown();
    stamp = shown.stamp;  // set only after everything is drawn, so that failed parts are requested again
  } catch (error) {
    if (number === asked) say(error.message);
  } finally {
    clearTimeout(slow);
    if (number === asked) panel.classList.remove("busy");
  }
}
async function loadBreakdown() {
  const number = ++askedBelow;
  const html = await ask("breakdown", { facet: state.facet, one: state.one });
  if (number === askedBelow) show(below, html);
}

// ---- clicks in the panel
async function showDetail(button) {
  const asked = button.closest("tr"), next = asked.nextElementSibling, path = rowAt(asked);
  if (next && next.classList.contains("more-row")) { next.remove(); button.setAttribute("aria-expanded", "false"); return; }
  const said = await ask("detail", { key: asked.dataset.key });
  const row = root.querySelector(path);  // the table may have been redrawn since the click
  if (row && row.querySelector(".more").getAttribute("aria-expanded") !== "true") openRow(row, []).innerHTML = said;
}
function changeSection(section) {
  return choose({ section, branches: [], facet: null, one: null, all: null, sorts: {} });
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
  } else if (button.dataset.of?.startsWith("plot-")) {
    savePlot(button.closest("[data-plot]"), what, link(), [format, ...state.branches.map((path) => path.slice(1).join("-"))].join("-").replace(/[^A-Za-z0-9.-]+/g, "-").slice(0, 80));
  } else {
    saveFile(await ask("export", { as: what, of: button.dataset.of || "leaderboard", facet: state.facet, one: state.one }));
  }
}
root.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const done = sortClicked(button, state.sorts) ? (root.querySelector("[data-part]") ? choose({ all: "yes" }) : step())
    : button.classList.contains("more") ? showDetail(button)
    : button.dataset.name ? choose({ [button.dataset.name]: button.value })
    : button.dataset.act ? act(button) : null;
  done?.catch((error) => say(error.message));
});
root.addEventListener("change", (event) => {
  const { name } = event.target.dataset, { value } = event.target;
  if (name === "section") changeSection(value);
  else if (name === "metric" || name === "shown") choose({ [name]: value });
  else if (name === "facet" || name === "one") {
    state[name] = value;
    delete state.sorts.breakdown;
    step();
    loadBreakdown().catch((error) => say(error.message));
  }
});

// ---- start, and polling for changes of the store
medprobe.register(format, arrive);
const news = setInterval(() => {
  if (!root.isConnected) clearInterval(news);
  else if (!document.hidden && root.offsetParent !== null) update(true);
}, 15000);
}
