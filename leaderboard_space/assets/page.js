// A page that is a form and what follows from it: every choice in it is sent to the server, which answers with the whole page.
// Runs as the body of a function with `element` (this component), `server.whole_page` and `server.page_file`; table.js stands before it.
const root = element.querySelector(".mp-page");
if (!root) return;
const name = root.dataset.page;
let state = {}, sorts = {}, asked = 0, patience = 40;

function readAddress() {
  const given = new URLSearchParams(location.search);
  if (given.get("b") === name) { for (const [key, value] of given) if (key !== "b" && key !== "sort" && !key.startsWith("__")) state[key] = value; sorts = readSorts(given); }
}
function address() {
  const said = new URLSearchParams({ b: name });
  for (const [key, value] of Object.entries(state)) if (value) said.set(key, value);
  const kept = new URLSearchParams(location.search).get("__theme");
  if (kept) said.set("__theme", kept);
  writeSorts(said, sorts);
  return location.origin + location.pathname + "?" + said.toString();
}
function writeAddress() { if (root.offsetParent !== null) history.replaceState(history.state, "", address()); }
async function update() {
  const number = ++asked;
  const slow = setTimeout(() => root.classList.add("busy"), 150);
  try {
    const answer = await server.whole_page(state);
    if (number !== asked) return;
    if ("error" in answer) root.textContent = answer.error;
    else redraw(root, answer.ok, sorts);
    writeAddress();
    if (root.querySelector("[data-waiting]") && patience-- > 0) setTimeout(() => { if (number === asked) update(); }, 1500);
  } catch (error) {
    if (number === asked) root.querySelector(".finding").textContent = "The server did not answer.";
  } finally {
    clearTimeout(slow);
    if (number === asked) root.classList.remove("busy");
  }
}
function choose(field, value) {
  if (field === "set") { state = {}; sorts = {}; }
  if (field !== "page") delete state.page;
  state[field] = value;
  return update();
}
root.addEventListener("change", (event) => {
  if (event.target.matches("select[data-name]")) choose(event.target.dataset.name, event.target.value);
});
async function save(of, as) {
  const answer = await server.page_file({ ...state, of, as });
  if ("ok" in answer) saveFile(answer.ok);
  else root.querySelector(".finding").textContent = answer.error;
}
let typing = null;
root.addEventListener("input", (event) => {
  if (!event.target.matches("input[data-name]")) return;
  clearTimeout(typing);
  const { name: field } = event.target.dataset, value = event.target.value;
  typing = setTimeout(() => choose(field, value), 250);
});
root.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-name]");
  if (button) choose(button.dataset.name, button.value).then(() => root.scrollIntoView());
  const other = event.target.closest("button");
  if (!other || button) return;
  if (sortClicked(other, sorts)) writeAddress();
  else if (other.dataset.act === "link") copyLink(other, address());
  else if (other.dataset.act) save(other.dataset.of, other.dataset.act);
});
readAddress();
update();
new IntersectionObserver((seen) => { if (seen.some((entry) => entry.isIntersecting)) { if (asked) writeAddress(); showTab(); } }).observe(root);
