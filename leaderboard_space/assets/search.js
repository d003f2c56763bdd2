// The search on the first screen; its hits are links. The key `/` focuses it from any page.
function medprobeSearch(element) {
const server = medprobe.server("overview"), box = element.querySelector(".mp-search");
const field = box.querySelector("input"), list = box.querySelector("ul"), said = box.querySelector(".hear");
let asked = 0, timer = null;

function draw(hits, told) {
  list.replaceChildren(...hits.map((hit) => {
    const item = makeNode("li"), link = makeNode("a");
    link.href = hit.address;
    link.append(makeNode("b", "", hit.name), " ", makeNode("small", "", hit.where));
    item.append(link);
    return item;
  }));
  list.hidden = !hits.length;
  said.textContent = told;
  said.classList.toggle("none", !hits.length);
}
async function ask() {
  const query = field.value.trim(), number = ++asked;
  if (!query) return draw([], "");
  const answer = await server.search({ query }).catch(() => ({ error: "The server did not answer." }));
  if (number !== asked) return;
  const hits = answer.ok || [], many = hits.length + (hits.length === 1 ? " hit" : " hits");
  draw(hits, answer.error || (hits.length ? many : "No match for “" + query + "”. Try a department, a modality, a finding or a model."));
}
field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
field.addEventListener("keydown", async (event) => {
  if (event.key !== "Enter") return;
  clearTimeout(timer);
  await ask();
  list.querySelector("a")?.click();
});
list.addEventListener("click", () => draw([], ""));
box.addEventListener("keydown", (event) => { if (event.key === "Escape") { field.focus(); draw([], ""); } });
for (const leaving of ["focusin", "click"]) document.addEventListener(leaving, (event) => { if (!box.contains(event.target)) list.hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable=true]")) return;
  event.preventDefault();
  medprobe.visit(document.querySelector("#mp-nav a").getAttribute("href"));
  field.focus();
  field.select();
});
}
