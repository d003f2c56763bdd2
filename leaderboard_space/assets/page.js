// A page with a form: every choice is sent to the server, which answers with the whole page.
// `element` is the component; the server has a `page` and a `file` function for it. The address is the state: #/NAME/ID?key=value.
// `id` is sent like any other key; a repeated key becomes a list. `arrived` is called on every visit.
function medprobePage(element, arrived) {
const root = element.querySelector(".mp-page");
const name = root.dataset.page, server = medprobe.server(name);
let state = {}, sorts = {}, asked = 0, polls = 40;

function arrive(route) {
  state = route.id ? { id: route.id } : {};
  for (const key of route.given.keys()) if (key !== "sort" && key !== "id") state[key] = route.given.getAll(key).length > 1 ? route.given.getAll(key) : route.given.get(key);
  sorts = readSorts(route.given);
  settle(root);
  arrived();
  update();
}
function address() {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) if (key !== "id") for (const one of [value].flat()) if (one) said.append(key, one);
  writeSorts(said, sorts);
  return medprobe.build(name, state.id || "", said);
}
const link = () => location.origin + location.pathname + address();
async function update() {
  const number = ++asked;
  const slow = setTimeout(() => root.classList.add("busy"), 150);
  try {
    const answer = await server.page(state);
    if (number !== asked) return;
    if ("error" in answer) root.textContent = answer.error;
    else redraw(root, answer.ok, sorts);
    const heading = root.querySelector("[data-title]");
    if (heading && root.offsetParent !== null) medprobe.title(heading.dataset.title);
    if (root.querySelector("[data-waiting]") && polls-- > 0) setTimeout(() => { if (number === asked) update(); }, 1500);
  } catch (error) {
    if (number === asked) root.querySelector(".finding").textContent = "The server did not answer.";
  } finally {
    clearTimeout(slow);
    if (number === asked) root.classList.remove("busy");
  }
}
function choose(field, value, typing) {
  if (field === "set") { state = state.id ? { id: state.id } : {}; sorts = {}; }
  if (field !== "at") delete state.at;  // a new choice starts at its first page
  state[field] = value;
  medprobe[typing ? "rewrite" : "push"](address());  // typing a word is one step of the history, not one per letter
  return update();
}
root.addEventListener("change", (event) => {
  if (event.target.matches("select[data-name]")) choose(event.target.dataset.name, event.target.value);
  else if (event.target.matches("input[list][data-name]")) named(event.target);
});
function named(input) {  // true if the name was chosen from the suggestions or typed completely
  const { name: field, page } = input.dataset, value = input.value.trim();
  clearTimeout(typing);
  if (page) { if (value) medprobe.visit(medprobe.build(page, value, new URLSearchParams())); }
  else if ((state[field] || "") !== value) choose(field, value);
}
async function save(of, as) {
  const answer = await server.file({ ...state, of, as, link: link() });
  const box = root.querySelector(".cite");
  if ("ok" in answer && as === "cite") { box.textContent = answer.ok.text; box.hidden = !box.hidden; }
  else if ("ok" in answer) saveFile(answer.ok);
  else root.querySelector(".finding").textContent = answer.error;
}
let typing = null;
root.addEventListener("input", (event) => {
  if (!event.target.matches("input[data-name]")) return;
  if (event.target.list) {  // ignore partial names: a name counts once it is one of the suggestions, or complete
    if ([...event.target.list.options].some((one) => one.value === event.target.value)) named(event.target);
    return;
  }
  clearTimeout(typing);
  const { name: field } = event.target.dataset, value = event.target.value;
  typing = setTimeout(() => choose(field, value, true), 250);
});
root.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { name: field, act, of } = button.dataset;
  if (button.matches(".picture")) button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") !== "true");
  else if (sortClicked(button, sorts)) root.querySelector("[data-part]") ? choose("all", "yes") : medprobe.push(address());
  else if (field && "toggle" in button.dataset) {  // one of several toggles
    const held = [state[field] || []].flat();
    choose(field, held.includes(button.value) ? held.filter((one) => one !== button.value) : [...held, button.value]);
  } else if (field) choose(field, button.value);
  else if (act === "link") copyLink(button, link());
  else if (act) save(of, act);
});
medprobe.register(name, arrive);
}
