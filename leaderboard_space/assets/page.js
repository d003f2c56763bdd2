// A page that is a form and what follows from it: every choice in it is sent to the server, which answers with the whole page.
// Runs as the body of a function with `element` (this component) and `server.whole_page`.
const root = element.querySelector(".mp-page");
if (!root) return;
const name = root.dataset.page;
let state = {}, asked = 0;

function readAddress() {
  const given = new URLSearchParams(location.search);
  if (given.get("b") === name) for (const [key, value] of given) if (key !== "b") state[key] = value;
}
function writeAddress() {
  if (root.offsetParent === null) return;
  const said = new URLSearchParams({ b: name });
  for (const [key, value] of Object.entries(state)) if (value) said.set(key, value);
  const kept = new URLSearchParams(location.search).get("__theme");
  if (kept) said.set("__theme", kept);
  history.replaceState(history.state, "", location.pathname + "?" + said.toString());
}
async function update() {
  const number = ++asked;
  const slow = setTimeout(() => root.classList.add("busy"), 150);
  const active = document.activeElement && root.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const caret = active ? document.activeElement.selectionStart : null;
  try {
    const answer = await server.whole_page(state);
    if (number !== asked) return;
    root.innerHTML = "ok" in answer ? answer.ok : "";
    if ("error" in answer) root.textContent = answer.error;
    const again = active && root.querySelector('[data-name="' + active + '"]');
    if (again) { again.focus(); if (again.type === "search" && caret !== null) again.setSelectionRange(caret, caret); }
    writeAddress();
  } catch (error) {
    if (number === asked) root.querySelector(".finding").textContent = "The server did not answer.";
  } finally {
    clearTimeout(slow);
    if (number === asked) root.classList.remove("busy");
  }
}
function choose(field, value) {
  if (field === "set") state = {};
  if (field !== "page") delete state.page;
  state[field] = value;
  return update();
}
root.addEventListener("change", (event) => {
  if (event.target.matches("select[data-name]")) choose(event.target.dataset.name, event.target.value);
});
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
});
readAddress();
update();
new IntersectionObserver((seen) => { if (seen.some((entry) => entry.isIntersecting) && asked) writeAddress(); }).observe(root);
