// Addresses: #/PAGE/ID?key=value names every view (#/b/NAME a benchmark's), so that links, back, forward and reload work everywhere.
// A page calls `register(name, arrive)`; `arrive(route)` draws the view of the address on every visit. A page stays hidden until it is
// registered, so that everything visible can be used.
// A page that changes its own state calls `push` (a new step of the history) or `rewrite` (the same view with a complete address).
window.medprobe = (() => {
  const pages = new Map(), last = new Map();
  let shown = null, inSight = null;
  const decoded = (part) => { try { return decodeURIComponent(part); } catch (error) { return part; } };
  const tabs = () => [...document.querySelectorAll("#mp-nav a")];
  const first = () => tabs()[0].dataset.page, home = () => tabs()[0].dataset.home;
  function read(hash) {
    const said = hash.replace(/^#\/?/, ""), at = said.indexOf("?");
    const path = (at < 0 ? said : said.slice(0, at)).split("/").filter(Boolean).map(decoded);
    const depth = path[0] === "b" ? 2 : 1;
    return { page: path[depth - 1] || first(), id: path.slice(depth).join("/"), given: new URLSearchParams(at < 0 ? "" : said.slice(at + 1)), address: hash || home() };
  }
  const full = (address) => location.pathname + location.search + address;  // the document's base URL has no query
  const prefix = (page) => (tabs().find((tab) => tab.dataset.page === page)?.dataset.home || "#/" + page);
  function build(page, id, given) {
    const said = given.toString();
    return prefix(page) + (id ? "/" + id.split("/").map(encodeURIComponent).join("/") : "") + (said ? "?" + said : "");
  }
  function mark(route) {  // mark the current tab, and update its link
    last.set(route.page, route.address);
    const all = tabs(), chosen = all.find((tab) => tab.dataset.page === route.page);
    for (const tab of all) {
      tab.ariaCurrent = tab === chosen ? "page" : null;
      tab.setAttribute("href", last.get(tab.dataset.page) || tab.dataset.home);
    }
    if (chosen && chosen !== inSight) {  // on narrow screens the tabs scroll: keep the current one visible
      inSight = chosen;
      const strip = chosen.parentElement;
      strip.scrollLeft = chosen.offsetLeft - (strip.clientWidth - chosen.offsetWidth) / 2;
    }
    if (!chosen) { inSight = null; all[0].parentElement.scrollLeft = 0; }  // topics and models have no tab
    title(chosen ? chosen.textContent : route.id);
  }
  const title = (said) => { document.title = (said ? said + " · " : "") + "medprobe"; };
  function show() {
    const here = location.hash || home();
    if (here === shown) return;
    const route = read(here), before = shown === null ? null : read(shown);
    if (!pages.has(route.page)) {
      if (tabs().some((tab) => !pages.has(tab.dataset.page))) requestAnimationFrame(show);  // a page is not registered yet
      else visit(home() + "?unknown=" + encodeURIComponent(route.page), true);
      return;
    }
    shown = here;
    for (const one of document.querySelectorAll("[id^=page-]")) one.classList.toggle("here", one.id === "page-" + route.page);
    mark(route);
    if (before && !isSameView(before, route)) scrollTo(0, 0);
    pages.get(route.page)(route);
  }
  const isSameView = (one, other) => one.page === other.page && one.id === other.id;
  function focusPanel() {  // the clicked link is gone: let Tab continue at the start of the new page
    const held = document.querySelector("[id^=page-].here");
    if (!held) return;
    held.tabIndex = -1;  // focusable by script only: the region is not a control
    held.focus({ preventScroll: true });
  }
  function visit(address, instead) {
    if (address !== location.hash) history[instead ? "replaceState" : "pushState"](null, "", full(address));
    show();
  }
  const tell = (method) => (address) => {
    if (address !== location.hash) history[method](null, "", full(address));
    shown = address;
    mark(read(address));
  };
  const register = (page, arrive) => { pages.set(page, arrive); };
  function comeBack() {  // signing in leaves the page and returns without the hash
    const before = sessionStorage.getItem("medprobe-signing-in");
    sessionStorage.removeItem("medprobe-signing-in");
    if (before && location.hash.length <= 2) history.replaceState(null, "", full(before));
  }
  function start() {
    comeBack();
    for (const moved of ["popstate", "hashchange"]) addEventListener(moved, show);
    document.addEventListener("click", (event) => {
      if (event.target.closest("#mp-sign-in")) sessionStorage.setItem("medprobe-signing-in", location.hash);
    }, true);
    document.addEventListener("keydown", (event) => {  // Gradio would open a dropdown that Tab has just left
      if (event.key === "Tab" && event.target.matches("#mp-submit input[role=combobox]")) event.stopPropagation();
    }, true);
    document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); focusPanel(); });
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#/"]');
      if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      const before = read(location.hash), isTab = link.closest("#mp-nav");
      visit(link.getAttribute("href"));
      if (!isTab && !isSameView(before, read(location.hash))) focusPanel();
    });
    show();
  }
  // Drawing a reply may replace or move the element under the pointer. Wait until the pointer is released, or the click would be lost.
  let released = Promise.resolve();
  addEventListener("pointerdown", () => {
    released = new Promise((done) => ["pointerup", "pointercancel", "blur"].forEach((end) => addEventListener(end, () => setTimeout(done), { once: true })));
  }, true);
  // Requests to the server (serving.py): server("compare").page(request) returns { ok } or { error }.
  const server = (page) => new Proxy({}, {
    get: (_, name) => async (request) => {
      const answer = await fetch("board/" + page + "/" + name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
      if (!answer.ok) throw new Error(answer.status);
      const said = await answer.json();
      await released;
      return said;
    },
  });
  return { read, build, visit, register, start, title, server, push: tell("pushState"), rewrite: tell("replaceState") };
})();
