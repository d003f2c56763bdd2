// Functions of every table of the board: sort by a column, and save as a file. Loaded before board.js and page.js.
// A head with data-sort contains a button; rows are sorted by data-v (an unrounded number, "" if there is none) or else by their text.
// The first click shows the largest first (a text: A to Z), the second reverses the order, the third restores the board's own order.
function sortTable(table, name, direction) {
  const heads = [...table.tHead.rows[0].cells], at = heads.findIndex((head) => head.dataset.sort === name);
  table.bodies = table.bodies || [...table.tBodies].filter((body) => !("fixed" in body.dataset)).map((body) => [body, [...body.rows]]);
  for (const head of heads) head.removeAttribute("aria-sort");
  for (const body of [...table.tBodies]) if (!("fixed" in body.dataset)) body.remove();  // pinned rows stay
  if (at < 0 || !direction) {
    for (const [body, rows] of table.bodies) { body.append(...rows); table.append(body); }
    return;
  }
  const value = (row) => {
    const cell = row.cells[at];
    if (!cell || !("v" in cell.dataset)) return cell ? cell.textContent.trim().toLowerCase() : null;
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };
  const rows = table.bodies.flatMap(([, held]) => held).filter((row) => row.cells.length > 1 && !row.classList.contains("group"))
    .map((row, order) => [value(row), order, row]);
  const sign = direction === "ascending" ? 1 : -1;
  rows.sort(([a, i], [b, j]) => a === b ? i - j : a === null ? 1 : b === null ? -1 : sign * (a < b ? -1 : 1));
  const body = document.createElement("tbody");
  body.append(...rows.map(([, , row]) => row));
  table.append(body);
  heads[at].setAttribute("aria-sort", direction);
}
function nextOrder(head) {  // the order that a click on a head requests
  const isText = ![...head.closest("table").tBodies].some((body) => [...body.rows].some((row) => row.cells[head.cellIndex] && "v" in row.cells[head.cellIndex].dataset));
  const order = isText ? ["ascending", "descending", null] : ["descending", "ascending", null];
  return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
}
// The orders of tables in an address: sort=TABLE:a|d:COLUMN, once for each sorted table.
const readSorts = (given) => Object.fromEntries(given.getAll("sort").map((said) => said.match(/^(\w+):([ad]):([\s\S]*)$/)).filter(Boolean)
  .map(([, table, way, column]) => [table, [column, way === "a" ? "ascending" : "descending"]]));
const writeSorts = (said, sorts) => {
  for (const [table, [column, direction]] of Object.entries(sorts)) said.append("sort", table + ":" + direction[0] + ":" + column);
};
const applySorts = (root, sorts) => {  // may also restore the board's own order
  for (const table of root.querySelectorAll("table[data-table]")) {
    const wanted = sorts[table.dataset.table], head = table.querySelector("th[aria-sort]");
    if (wanted) sortTable(table, ...wanted);
    else if (head) sortTable(table, head.dataset.sort, null);
  }
};
function sortClicked(target, sorts) {  // returns whether the click was on a head; records the order in `sorts`
  const head = target.closest("th[data-sort]");
  if (!head || !target.closest("button.sorts")) return false;
  const table = head.closest("table"), direction = nextOrder(head);
  for (const extra of table.querySelectorAll(".more-row")) extra.remove();
  for (const more of table.querySelectorAll('[aria-expanded="true"]')) more.setAttribute("aria-expanded", "false");
  if (direction) sorts[table.dataset.table] = [head.dataset.sort, direction]; else delete sorts[table.dataset.table];
  sortTable(table, head.dataset.sort, direction);
  head.querySelector("button").focus();
  return true;
}
// ---- redrawing an area while keeping open details, scroll positions and the focus
// A disclosure is identified by data-keep, a result's details by the table and the data-key of their row, a scrolled table by data-table.
const attribute = (name, value) => "[" + name + '="' + CSS.escape(value) + '"]';
const rowAt = (row) => "table" + attribute("data-table", row.closest("table").dataset.table) + " tr" + attribute("data-key", row.dataset.key);
const scrolled = (area) => [...area.querySelectorAll(".scroll > table[data-table]")].filter((table) => table.parentElement.scrollLeft);
function openRow(row, content) {  // show the details of a result under its row; returns their cell
  const extra = document.createElement("tr"), cell = document.createElement("td");
  extra.className = "more-row";
  cell.colSpan = [...row.cells].filter((one) => one.offsetParent !== null).length || row.cells.length;
  cell.append(...content);
  extra.append(cell);
  row.after(extra);
  row.querySelector(".more").setAttribute("aria-expanded", "true");
  return cell;
}
function redraw(area, html, sorts) {  // returns [row, cell] for the rows whose details were open and are open again
  const had = area.contains(document.activeElement) ? document.activeElement : null;
  const focus = had && pathTo(had);
  const kept = new Map([...area.querySelectorAll("details[data-keep]")].map((one) => [one.dataset.keep, one.open]));
  const sideways = new Map(scrolled(area).map((table) => [table.dataset.table, table.parentElement.scrollLeft]));
  const rows = [...area.querySelectorAll("tr.more-row")].map((extra) => [rowAt(extra.previousElementSibling), [...extra.cells[0].childNodes]]);
  const cited = area.querySelector(".cite:not([hidden])");
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const twin = had && had.matches("input[type=search]") && focus && fresh.content.querySelector(focus);
  if (!twin || !drawAround(area, had, fresh.content, twin)) area.replaceChildren(fresh.content);
  applySorts(area, sorts);
  for (const one of area.querySelectorAll("details[data-keep]")) if (kept.has(one.dataset.keep)) one.open = kept.get(one.dataset.keep);
  const cite = area.querySelector(".cite");
  if (cited && cite) { cite.textContent = cited.textContent; cite.hidden = false; }
  const again = rows.map(([path, content]) => [area.querySelector(path), content]).filter(([row]) => row).map(([row, content]) => [row, openRow(row, content)]);
  for (const [table, left] of sideways) {
    const place = area.querySelector(".scroll > table" + attribute("data-table", table));
    if (place) place.parentElement.scrollLeft = left;
  }
  const target = focus && area.querySelector(focus);
  if (target && target !== document.activeElement) target.focus({ preventScroll: true });
  return again;
}
function drawAround(area, field, fresh, twin) {  // redraw all of `area` except the field in use: it stays in the document and keeps its text,
  const steps = (node, top) => node === top ? [] : [...steps(node.parentNode, top), node];  // selection and composition
  const old = steps(field, area), now = steps(twin, fresh);
  if (old.length !== now.length) return false;
  old.forEach((node, at) => {
    const all = [...now[at].parentNode.childNodes], place = all.indexOf(now[at]);
    for (const one of [...node.parentNode.childNodes]) if (one !== node) one.remove();
    node.before(...all.slice(0, place));
    node.after(...all.slice(place + 1));
  });
  const isOutdated = field.value === field.defaultValue && field.value !== twin.value;
  field.defaultValue = twin.value;
  if (isOutdated) { field.value = twin.value; field.select(); }  // selected, so that typing replaces it
  return true;
}
function settle(area) {  // typed text belongs to the previous view, so the next one may replace it
  const field = document.activeElement;
  if (area.contains(field) && field.matches("input[type=search]")) field.defaultValue = field.value;
}
const AROUND = "table[data-table], tr[data-key], th[data-sort], details[data-keep]";
function pathTo(node) {  // how to find the focused element after redrawing, so that keyboard users keep their place
  if (node.matches("input[type=radio]")) return "input[type=radio]:checked";
  const isName = (name) => /^data-(table|key|sort|keep|name|act|of)$/.test(name) || (name === "value" && node.localName === "button");
  const steps = [node];
  for (let one = node.parentElement.closest(AROUND); one; one = one.parentElement.closest(AROUND)) steps.unshift(one);
  return steps.map((one) => one.localName + [...one.attributes].filter(({ name }) => isName(name)).map(({ name, value }) => attribute(name, value)).join("")).join(" ");
}
function saveFile(file) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([file.text], { type: file.type + ";charset=utf-8" }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
async function copyLink(button, link) {
  const said = button.textContent;
  try { await navigator.clipboard.writeText(link); button.textContent = "Link copied"; }
  catch (error) { prompt("The link to this view:", link); }
  setTimeout(() => { button.textContent = said; }, 2000);
}
