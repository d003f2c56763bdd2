// What every table of the board can do: be sorted by a column, and be saved as a file. Stands before board.js and page.js, in one function.
// A head with data-sort holds a button; the rows are sorted by data-v (a number in full; "" where there is none) or else by their text.
// The first click shows the largest first (a text: A to Z), the second turns it round, the third gives the board's own order back.
function sortTable(table, name, direction) {
  const heads = [...table.tHead.rows[0].cells], at = heads.findIndex((head) => head.dataset.sort === name);
  table.bodies = table.bodies || [...table.tBodies].map((body) => [body, [...body.rows]]);
  for (const head of heads) head.removeAttribute("aria-sort");
  for (const body of [...table.tBodies]) body.remove();
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
function nextOrder(head) {  // what a click on a head asks for
  const isText = ![...head.closest("table").tBodies].some((body) => [...body.rows].some((row) => row.cells[head.cellIndex] && "v" in row.cells[head.cellIndex].dataset));
  const order = isText ? ["ascending", "descending", null] : ["descending", "ascending", null];
  return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
}
// The orders of tables as they stand in an address: sort=TABLE:a|d:COLUMN, one for each sorted table.
const readSorts = (given) => Object.fromEntries(given.getAll("sort").map((said) => said.match(/^(\w+):([ad]):([\s\S]*)$/)).filter(Boolean)
  .map(([, table, way, column]) => [table, [column, way === "a" ? "ascending" : "descending"]]));
const writeSorts = (said, sorts) => {
  for (const [table, [column, direction]] of Object.entries(sorts)) said.append("sort", table + ":" + direction[0] + ":" + column);
};
const applySorts = (root, sorts) => {
  for (const [name, [column, direction]] of Object.entries(sorts)) {
    const table = root.querySelector('table[data-table="' + CSS.escape(name) + '"]');
    if (table) sortTable(table, column, direction);
  }
};
function sortClicked(target, sorts) {  // whether the click was on a head; the order is noted in `sorts`
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
const showTab = () => {  // on a narrow screen the strip of tabs scrolls: keep the chosen one in sight
  const tab = document.querySelector('#mp-tabs [role="tab"][aria-selected="true"]');
  if (tab) tab.scrollIntoView({ inline: "center", block: "nearest" });
};
if (!window.medprobeTabs) {  // once for the page: also where no table is, and where a link chose the tab
  window.medprobeTabs = new MutationObserver(showTab);
  const tabs = document.querySelector("#mp-tabs");
  if (tabs) window.medprobeTabs.observe(tabs, { subtree: true, attributes: true, attributeFilter: ["aria-selected"] });
}
