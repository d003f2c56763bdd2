"""Markup, style and script of the page (`page.py`).

On a wide screen, the question and the fields are beside the images; on a narrow one, above and
below them. The page loads nothing from other servers.
"""

# ruff: noqa: E501
import json
from collections.abc import Mapping
from html import escape
from typing import Any

PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --panel: #fff; --ink: #1d2733; --faint: #566270; --line: #c9cfd6; --accent: #0f766e; --on: #fff; --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --panel: #1a2027; --ink: #e6e9ec; --faint: #9aa5b1; --line: #3a444f; --accent: #2dd4bf; --on: #06201d; --bad: #f87171 } }
* { box-sizing: border-box; overflow-wrap: anywhere } body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif }
header { display: flex; flex-wrap: wrap; gap: .4rem .8rem; align-items: center; padding: .5rem 1rem; border-bottom: 1px solid var(--line) }
h1 { font-size: 15px; margin: 0 } h2 { font-size: 19px; line-height: 1.3; margin: 0 } label, legend { color: var(--faint); font-size: 14px }
main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(23rem, 30rem); gap: 1rem; padding: .8rem 1rem }
#ask { grid-column: 2; grid-row: 1 } #fields { grid-column: 2; grid-row: 2 } #pictures { grid-column: 1; grid-row: 1 / span 3 }
#pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .8rem; align-content: start; position: sticky; top: .8rem }
.picture { overflow: hidden; height: calc(100vh - 11rem); min-height: 16rem; background: #000; cursor: grab; position: relative; touch-action: none; border-radius: 4px }
.picture img { position: absolute; left: 0; top: 0; transform-origin: 0 0; max-width: none; user-select: none }
.side label { display: inline-flex; gap: .4rem; align-items: center; margin-right: 1rem } .side input { width: 7rem }
#heading, #progress { color: var(--faint); font-variant-numeric: tabular-nums } main.plain { display: block; max-width: 46rem } #options { margin: .4rem 0; padding-left: 1.2rem } #options .right { font-weight: 700 }
fieldset { border: 0; margin: 0 0 .6rem; padding: 0 } fieldset.check { display: inline-block; margin-right: .3rem } .row { display: flex; flex-wrap: wrap; gap: .25rem } .help { color: var(--faint); font-size: 13px }
button, input, textarea, select { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 5px; padding: .3rem .55rem }
button { cursor: pointer } button[aria-pressed=true] { background: var(--accent); color: var(--on); border-color: var(--accent) }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px } textarea, .long { width: 100% } kbd { font: 12px ui-monospace, monospace; opacity: .7 }
.ordered header :is(button, #number) { display: none } .ordered #fields .row { flex-direction: column; gap: .4rem } .ordered #fields button { text-align: left; padding: .55rem .8rem } .ordered .row + .row button { border: 2px solid var(--accent); font-weight: 600 }
#said { min-height: 1.4em; font-variant-numeric: tabular-nums } .bad { color: var(--bad); font-weight: 600 } summary { cursor: pointer; color: var(--faint) } details p { margin: .3rem 0 }
#lost { position: fixed; inset: auto 0 0 0; z-index: 9; padding: .8rem 1.2rem; background: #b91c1c; color: #fff; font-weight: 600 }
@media (max-width: 900px) { main { display: flex; flex-direction: column } #pictures { position: static; width: 100% } #ask { order: -1 } .picture { height: 42vh } header { padding: .5rem } main { padding: .6rem } }
"""

IMAGE_HELP = "+ - zoom, arrows move, [ ] contrast, , . brightness, r reset. Wheel or two fingers zoom, drag moves; with Shift or the right button, drag sets contrast (sideways) and brightness (up and down); double click resets."
KEY_HELP = f"n next, p previous, o next open; Esc leaves a text field; d details; {IMAGE_HELP}"

PAGE_SCRIPT = """
const config = JSON.parse(document.querySelector('#config').textContent), $ = (id) => document.getElementById(id);
const make = (tag, set = {}, ...inside) => { const node = Object.assign(document.createElement(tag), set); node.append(...inside); return node; };
let now = {}, queue = Promise.resolve();
const fields = () => now.fields?.length ? now.fields : config.fields;
const name = () => config.linked ? config.name : $('reviewer').value.trim();
const tell = (text) => { $('said').textContent = text; };
const lost = () => { if (!$('lost')) document.body.append(make('div', {id: 'lost', role: 'alert', textContent:
  'NOT saved: the server did not answer. When it runs again, reload this page: what it then shows is saved.'})); };
const ask = async (path, body) => {
  try {
    const answer = await fetch(path, body && {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(body)});
    if (!answer.ok) throw new Error(answer.status);
    const said = await answer.json();
    await pressed;
    return said;
  } catch (error) { if (!leaving) lost(); throw error; }
};
// Redrawing may move the button under the pointer, so it waits until the pointer is released; otherwise the click would be lost.
let pressed = Promise.resolve();
addEventListener('pointerdown', () => { pressed = new Promise((done) => ['pointerup', 'pointercancel', 'blur'].forEach(
  (end) => addEventListener(end, () => setTimeout(done), {once: true}))); }, true);
let leaving = false; addEventListener('beforeunload', () => { leaving = true; });
const inTurn = (act) => { queue = queue.then(act).catch(() => {}); return queue; };
const go = (where, from) => inTurn(async () => {
  document.activeElement?.blur?.();
  const query = new URLSearchParams({reviewer: name(), item: from ?? now.item ?? '', go: where});
  const found = await ask('item?' + query), same = found.item === now.item;
  now = found; draw(!same); tell(name() ? '' : 'Give your name to begin.');
});
const failed = (field, why) => { $('field-' + field.name).querySelector('.bad').textContent = why ? 'NOT saved: ' + why : ''; };
const save = (field, what, seen) => {
  const item = now.item;
  return inTurn(async () => {
    if (item !== now.item) return;
    const held = now.values[field.name] ?? null, value = what(held);  // read when its turn comes, so that the second of two quick key presses undoes the first
    const said = await ask('save', {reviewer: name(), item, field: field.name, value, seen: seen === undefined ? held : seen});
    failed(field, said.error); if (said.error) return;
    tell(said.said);
    if (field.advances || field.commit) { now = said; draw(true); return; }
    if (!said.item) said.item = item;
    for (const each of fields()) if (each.commit && said.values) said.values[each.name] = now.values[each.name];  // not saved yet
    now = {...now, ...said}; status(); if (now.values) { texts(); mark(); }
  });
};
const status = () => { $('progress').textContent = (now.number ? now.number + ' of ' + now.items + '; ' : '') +
  (name() ? name() + ' decided ' + (now.done ?? 0) + ' of ' + now.items : ''); if (now.number) $('number').value = now.number; };
const texts = () => {
  $('heading').textContent = now.heading; $('question').textContent = now.question; $('details').hidden = !now.details; $('told').textContent = now.details;
  $('options').replaceChildren(...now.options.map(([text, right], at) => make('li', {className: right ? 'right' : '', textContent: 'ABCDEFGHIJ'[at] + '. ' + text + (right ? ' (right)' : '')})));
  document.querySelectorAll('.side .note').forEach((node, at) => { node.textContent = now.pictures[at]; });
};
const draw = (fresh) => {
  status(); const there = Boolean(now.item); $('fields').hidden = $('ask').hidden = !there;
  $('empty').hidden = there; $('empty').textContent = name() || config.linked ? now.finished : 'Give your name to begin.';
  if (!there) { $('pictures').replaceChildren(); return; }
  if (fresh && now.fields.length) build();
  if (fresh) fields().forEach((field) => failed(field, ''));
  if (fresh || !$('pictures').children.length) $('pictures').replaceChildren(...now.pictures.map((_, at) => {
    const img = make('img', {alt: 'image ' + (at + 1), draggable: false, src: 'picture/' + at + '?' + new URLSearchParams({item: now.item})});
    const slider = (text, most) => make('label', {textContent: text}, make('input', {type: 'range', min: 20, max: most, value: 100}));
    return make('div', {className: 'side'}, make('div', {className: 'picture'}, img), slider('brightness ', 300), slider('contrast ', 400), make('div', {className: 'note'}));
  }));
  document.querySelector('main').className = now.pictures.length ? '' : 'plain'; texts(); mark();
};
const mark = () => fields().forEach((field) => {
  const value = now.values?.[field.name], box = $('field-' + field.name);
  if (field.kind === 'text' || field.kind === 'list') { const input = box.querySelector('textarea, input');
    const text = field.kind === 'list' ? (value ?? []).join('; ') : value ?? '';
    if (document.activeElement !== input && !box.querySelector('.bad').textContent) input.value = text;
    if (input.value === text) input.seen = value ?? null; }  // typed text may replace the text that was read, not a newer one
  box.querySelectorAll('button[data-value]').forEach((button) => button.setAttribute('aria-pressed', String(Array.isArray(value) ? value.includes(button.dataset.value) : String(value ?? '') === button.dataset.value)));
});
const listed = (text) => [...new Set(text.split(';').map((part) => part.trim()).filter(Boolean))];
const press = (field, button) => {
  const item = now.item, value = button.dataset.value, toggled = (held) => (held ?? []).includes(value) ? held.filter((one) => one !== value) : [...(held ?? []), value];
  if (!field.commit) return save(field, field.kind === 'list' ? toggled : () => value);
  return inTurn(async () => { if (item !== now.item) return;  // a key pressed before this item was shown
    now.values = {...now.values, [field.name]: field.kind === 'choice' ? value : toggled(now.values[field.name])}; mark(); });
};
const build = () => $('fields').replaceChildren(...fields().map((field) => {
  const box = make('fieldset', {id: 'field-' + field.name, className: field.kind}), row = make('div', {className: 'row'}), keys = field.keys;
  const button = (value, text, key) => { const node = make('button', {type: 'button', textContent: text + ' '}); node.dataset.value = value;
    if (key) { if (!/^\\d+$/.test(text)) node.append(make('kbd', {textContent: key})); node.dataset.key = key; } node.onclick = (event) => { if (event.detail) node.blur();  // so that Enter presses the button that saves
      press(field, node); }; return node; };
  if (field.label) box.append(make('legend', {textContent: field.label}));
  field.choices.forEach(([value, text], at) => row.append(button(value, text, keys[at])));
  if (field.kind === 'text' || field.kind === 'list') {
    const input = make(field.kind === 'text' ? 'textarea' : 'input', {className: 'long', rows: 1, spellcheck: true});
    if (keys[0]) input.dataset.focus = keys[0];
    input.setAttribute('aria-label', field.label);
    input.addEventListener('change', () => { const text = input.value, seen = input.seen; save(field, () => field.kind === 'list' ? listed(text) : text, seen); }); box.append(input);
  }
  if (row.children.length) box.append(row);
  if (field.commit) { const node = make('button', {type: 'button', textContent: field.commit + ' '}, make('kbd', {textContent: 'Enter'})); node.dataset.key = 'Enter';
    node.onclick = () => save(field, (held) => held ?? []); box.append(make('div', {className: 'row', style: 'margin-top: .4rem'}, node)); }
  if (field.help) box.append(make('div', {className: 'help', textContent: field.help}));
  box.append(make('div', {className: 'bad', role: 'alert'})); return box;
}));
const typing = (node) => node && (/^(TEXTAREA|SELECT)$/.test(node.tagName) || (node.tagName === 'INPUT' && node.type !== 'range'));
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && typing(event.target)) { event.target.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const digit = event.code.match(/^(?:Digit|Numpad)([0-9])$/), key = digit ? (event.shiftKey ? 'Shift+' : '') + digit[1] : event.key;
  const keyed = (wanted) => [...document.querySelectorAll('[data-key]')].find((node) => node.dataset.key === wanted), button = keyed(key) ?? keyed(key.toLowerCase());
  if (button && !(key === 'Enter' && event.target.tagName === 'BUTTON')) { button.click(); event.preventDefault(); return; }
  const focus = document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
  if (focus) { focus.focus(); focus.select(); event.preventDefault(); return; }
  const where = !config.in_order && {n: 'next', p: 'previous', o: 'open'}[key];
  if (where) { go(where); event.preventDefault(); return; }
  if (key === 'd') $('details').open = !$('details').open;
  const boxes = [...document.querySelectorAll('.picture')].filter((box) => box.view), by = {'+': 1.25, '=': 1.25, '-': 0.8}[key];
  if (key === 'r') { boxes.forEach(fit); document.querySelectorAll('.side input').forEach((slider) => turn(slider, 100)); }
  if (by) boxes.forEach((box) => zoom(box, by, box.clientWidth / 2, box.clientHeight / 2));
  const move = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[key];
  if (move && event.target.tagName !== 'INPUT') { boxes.forEach((box) => { box.view.x += move[0]; box.view.y += move[1]; place(box); }); event.preventDefault(); }
  const slide = {',': [0, -10], '.': [0, 10], '[': [1, -10], ']': [1, 10]}[key];
  if (slide) document.querySelectorAll('.side').forEach((side) => { const slider = side.querySelectorAll('input')[slide[0]]; turn(slider, Number(slider.value) + slide[1]); });
});
const turn = (slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); };
const place = (box) => { const {x, y, zoom} = box.view; box.querySelector('img').style.transform = `translate(${x}px, ${y}px) scale(${zoom})`; };
const zoom = (box, by, x, y) => { const level = Math.min(40, Math.max(0.02, box.view.zoom * by)); by = level / box.view.zoom;
  box.view = {zoom: level, x: x - by * (x - box.view.x), y: y - by * (y - box.view.y)}; place(box); };
const fit = (box) => { const img = box.querySelector('img'); if (!img.naturalWidth) return;
  const zoom = Math.min(box.clientWidth / img.naturalWidth, box.clientHeight / img.naturalHeight);
  box.view = {zoom, x: (box.clientWidth - zoom * img.naturalWidth) / 2, y: (box.clientHeight - zoom * img.naturalHeight) / 2}; place(box); };
const boxOf = (event) => event.target.closest?.('.picture');
document.addEventListener('load', (event) => { const box = boxOf(event); if (box) fit(box); }, true);
addEventListener('resize', () => document.querySelectorAll('.picture').forEach(fit));
document.addEventListener('wheel', (event) => { const box = boxOf(event); if (!box?.view) return; event.preventDefault();
  const edge = box.getBoundingClientRect(); zoom(box, Math.exp(-event.deltaY / 400), event.clientX - edge.left, event.clientY - edge.top); }, {passive: false});
let held = null; const pointers = new Map();
document.addEventListener('pointerdown', (event) => { const box = boxOf(event); if (box?.view) { held = box; event.preventDefault(); pointers.set(event.pointerId, event); } });
document.addEventListener('pointermove', (event) => {
  const before = pointers.get(event.pointerId), other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
  if (!before || !event.buttons) { pointers.delete(event.pointerId); return; }
  pointers.set(event.pointerId, event);
  const right = event.clientX - before.clientX, down = event.clientY - before.clientY, edge = held.getBoundingClientRect();
  const distance = (one) => Math.max(1, Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY));
  if (other) zoom(held, distance(event) / distance(before), other.clientX - edge.left, other.clientY - edge.top);
  else if (event.shiftKey || event.buttons === 2) held.closest('.side').querySelectorAll('input').forEach((slider, at) => turn(slider, Number(slider.value) + (at ? right : -down)));
  else { held.view.x += right; held.view.y += down; place(held); }
});
['pointerup', 'pointercancel'].forEach((end) => document.addEventListener(end, (event) => pointers.delete(event.pointerId)));
document.addEventListener('contextmenu', (event) => { if (boxOf(event)) event.preventDefault(); });
document.addEventListener('dblclick', (event) => { const box = boxOf(event); if (box) fit(box); });
document.addEventListener('input', (event) => { const side = event.target.closest?.('.side'); if (!side) return;
  const [light, contrast] = [...side.querySelectorAll('input')].map((slider) => slider.value); side.querySelector('img').style.filter = `brightness(${light}%) contrast(${contrast}%)`; });
const who = config.names.length ? make('select', {id: 'reviewer'}, make('option', {value: '', textContent: 'your name'}), ...config.names.map((one) => make('option', {textContent: one})))
  : make('input', {id: 'reviewer', placeholder: 'your name', disabled: config.linked, value: config.name || (config.linked ? '' : localStorage.reviewer || '')});
who.setAttribute('aria-label', 'Your name'); who.onchange = () => { localStorage.reviewer = who.value; go('open', ''); }; $('name').append(who);
document.body.className = config.in_order ? 'ordered' : ''; build(); $('previous').onclick = () => go('previous'); $('next').onclick = () => go('next'); $('open').onclick = () => go('open');
$('number').onchange = () => go($('number').value || '1');
$('summary').hidden = !config.summary; $('summary').textContent = config.summary;
$('summary').onclick = async () => { $('summed').textContent = (await ask('summary')).text; };
go('open');
"""


def render_page(title: str, config: Mapping[str, Any]) -> str:
    """Render the page.

    Args:
        title: title of the task.
        config: the task's settings for the script, as JSON.
    """
    # A "</script>" in a text would end the script element early.
    config_json = json.dumps(config).replace("<", "\\u003c")
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{PAGE_STYLE}</style></head><body>
<header><h1>{escape(title)}</h1><span id="name"></span><button id="previous">previous <kbd>p</kbd></button>
<input id="number" type="number" min="1" aria-label="number of the item" style="width: 5rem"><button id="next">next <kbd>n</kbd></button>
<button id="open">next open <kbd>o</kbd></button><span id="progress"></span></header>
<main><section id="ask" hidden><div id="said" role="status"></div><div id="heading"></div><h2 id="question"></h2><ol id="options" style="list-style: none; padding: 0"></ol>
<details id="details"><summary>details <kbd>d</kbd></summary><p id="told" style="white-space: pre-line"></p></details></section>
<section id="pictures"></section><section id="fields" hidden></section><p id="empty" hidden></p>
</main><footer style="padding: 0 1rem 1rem"><button id="summary" hidden></button><p id="summed" style="white-space: pre-line"></p><p class="help">{escape(IMAGE_HELP if config["in_order"] else KEY_HELP)}</p></footer>
<script id="config" type="application/json">{config_json}</script><script>{PAGE_SCRIPT}</script></body></html>"""
