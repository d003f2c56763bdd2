"""What the review page looks like and how it answers to the keyboard: markup, style, script. See also: what a change
does (`review_app.py`)."""

from __future__ import annotations

from html import escape

from curation.review.review_log import Pair

STYLE = """
.picture { overflow: hidden; height: 56vh; background: #000; cursor: grab; position: relative; touch-action: none }
.picture img { position: absolute; left: 0; top: 0; transform-origin: 0 0; max-width: none; user-select: none }
.pictures { display: grid; grid-template-columns: 1fr 1fr; gap: 10px }
.pictures label { display: inline-block; margin-right: 1rem }
#score_1 .wrap, #score_2 .wrap { flex-wrap: nowrap; gap: 4px } #score_1 .wrap label, #score_2 .wrap label { padding: 4px 6px }
@media (max-width: 1100px) { #score_1 .wrap, #score_2 .wrap { flex-wrap: wrap } }
#captions summary { cursor: pointer }
#lost { position: fixed; inset: auto 0 0 0; z-index: 9999; padding: .8rem 1.2rem; background: #b91c1c; color: #fff; font-weight: 600 }
.saved { font-variant-numeric: tabular-nums } .not-saved { color: #b91c1c; font-weight: 600 }
"""

KEYS = (
    "Keys: `1`-`9`, `0` = score 1-10 of the left problem, with `Shift` of the right one; `x` correctness, `v` relevance, `l` language; "
    "`e` edit the question, `Tab` on to the next field, `Esc` back to the keys; `n` next, `p` previous, `o` next open one; `c` captions; "
    "`+` `-` zoom, arrows move, `[` `]` contrast, `,` `.` brightness, `r` reset the view. Wheel = zoom, drag = move, double click = reset."
)

SCRIPT = """
<script>
(() => {
  const press = (id) => document.querySelector('#' + id + ' button, button#' + id)?.click();
  const typing = (node) => node && (node.isContentEditable || /^(TEXTAREA|SELECT)$/.test(node.tagName) ||
    (node.tagName === 'INPUT' && !/^(radio|checkbox|range|button)$/.test(node.type)));
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && typing(event.target)) { event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const digit = event.code.match(/^(?:Digit|Numpad)([0-9])$/);
    if (digit) {
      const score = digit[1] === '0' ? 10 : Number(digit[1]);
      const group = event.shiftKey ? '#score_2' : '#score_1';
      document.querySelectorAll(group + ' input[type=radio]')[score - 1]?.click();
      event.preventDefault();
      return;
    }
    const button = {n: 'next', p: 'previous', o: 'next_open'}[event.key];
    if (button) { press(button); event.preventDefault(); }
    const check = {x: 'correctness', v: 'relevance', l: 'language'}[event.key];
    if (check) { document.querySelector('#' + check + ' input').click(); event.preventDefault(); }
    if (event.key === 'c') {
      const captions = document.querySelector('#captions');
      captions.open = !captions.open;
    }
    if (event.key === 'e') {
      document.querySelector('#question textarea, #question input')?.focus();
      event.preventDefault();
    }
    const boxes = [...document.querySelectorAll('.picture')];
    if (event.key === 'r') {
      boxes.forEach((box) => fit(box));
      document.querySelectorAll('.side input[type=range]').forEach((slider) => turn(slider, 100));
    }
    const by = {'+': 1.25, '=': 1.25, '-': 0.8}[event.key];
    if (by) boxes.forEach((box) => box.view && zoom(box, by, box.clientWidth / 2, box.clientHeight / 2));
    const move = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[event.key];
    if (move && !/^(INPUT|BUTTON)$/.test(event.target.tagName)) {
      boxes.forEach((box) => { if (box.view) { box.view.x += move[0]; box.view.y += move[1]; place(box); } });
      event.preventDefault();
    }
    const slide = {',': [0, -10], '.': [0, 10], '[': [1, -10], ']': [1, 10]}[event.key];
    if (slide) document.querySelectorAll('.side').forEach((side) => {
      const slider = side.querySelectorAll('input[type=range]')[slide[0]];
      turn(slider, Number(slider.value) + slide[1]);
    });
  });
  const turn = (slider, value) => {
    slider.value = value;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
  };
  const zoom = (box, by, x, y) => {
    const level = Math.min(40, Math.max(0.02, box.view.zoom * by));
    by = level / box.view.zoom;
    box.view = {zoom: level, x: x - by * (x - box.view.x), y: y - by * (y - box.view.y)};
    place(box);
  };
  const place = (box) => {
    const img = box.querySelector('img'), view = box.view;
    img.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.zoom})`;
  };
  const fit = (box) => {
    const img = box.querySelector('img');
    if (!img.naturalWidth) return;
    const zoom = Math.min(box.clientWidth / img.naturalWidth, box.clientHeight / img.naturalHeight);
    box.view = {zoom, x: (box.clientWidth - zoom * img.naturalWidth) / 2, y: (box.clientHeight - zoom * img.naturalHeight) / 2};
    place(box);
  };
  // A change that got no answer stays on the page as if it were saved: say so until the page is opened anew.
  const lost = () => {
    if (document.querySelector('#lost')) return;
    const bar = document.createElement('div');
    bar.id = 'lost';
    bar.setAttribute('role', 'alert');
    bar.textContent = 'NOT saved: the server did not answer. When it runs again, open this page anew: what it shows then is saved.';
    document.body.append(bar);
  };
  const ask = window.fetch;
  let leaving = false;
  window.addEventListener('beforeunload', () => { leaving = true; });
  window.fetch = async (...given) => {
    const saves = (given[1]?.method ?? given[0]?.method ?? 'GET').toUpperCase() === 'POST';
    try {
      const answer = await ask(...given);
      if (saves && !answer.ok) lost();
      return answer;
    } catch (error) {
      if (saves && !leaving) lost();
      throw error;
    }
  };
  const boxOf = (event) => event.target.closest?.('.picture');
  document.addEventListener('load', (event) => { const box = boxOf(event); if (box) fit(box); }, true);
  document.addEventListener('wheel', (event) => {
    const box = boxOf(event);
    if (!box?.view) return;
    event.preventDefault();
    const edge = box.getBoundingClientRect();
    zoom(box, Math.exp(-event.deltaY / 400), event.clientX - edge.left, event.clientY - edge.top);
  }, {passive: false});
  let held = null;
  document.addEventListener('pointerdown', (event) => {
    held = boxOf(event);
    if (held?.view) { event.preventDefault(); held.from = [event.clientX - held.view.x, event.clientY - held.view.y]; }
  });
  document.addEventListener('pointermove', (event) => {
    if (!held?.view) return;
    held.view.x = event.clientX - held.from[0];
    held.view.y = event.clientY - held.from[1];
    place(held);
  });
  document.addEventListener('pointerup', () => { held = null; });
  document.addEventListener('dblclick', (event) => { const box = boxOf(event); if (box) fit(box); });
  document.addEventListener('input', (event) => {
    const option = event.target.closest?.('#option_A, #option_B');
    if (option) document.querySelectorAll(`.right[data-option=${option.id}]`).forEach((node) => {
      node.textContent = event.target.value;
    });
    const side = event.target.closest?.('.side');
    if (!side) return;
    const [light, contrast] = [...side.querySelectorAll('input[type=range]')].map((slider) => slider.value);
    side.querySelector('img').style.filter = `brightness(${light}%) contrast(${contrast}%)`;
  });
})();
</script>
"""


def pictures(pair_id: str, pair: Pair) -> str:
    """Both images at full resolution (the browser scales them), each with sliders and the answer that is meant to be
    right (it follows what is typed for the option); below them the captions, for those who ask."""
    sides = []
    for number in (1, 2):
        source = f"picture/{escape(pair_id, quote=True)}/{number}"
        letter = pair.draft[f"correct_{number}"]
        answer = pair.option_A if letter == "A" else pair.option_B
        sides.append(
            f'<div class="side"><div class="picture"><img alt="image {number}" draggable="false" src="{source}"></div>'
            f'<label>brightness <input type="range" min="20" max="300" value="100"></label>'
            f'<label>contrast <input type="range" min="20" max="400" value="100"></label>'
            f'<div>Right here: <b>{letter}: <span class="right" data-option="option_{letter}">{escape(answer)}</span></b></div></div>'
        )
    captions = (
        f"<p><b>Left:</b> {escape(pair.draft['caption_1'])}</p><p><b>Right:</b> {escape(pair.draft['caption_2'])}</p>"
    )
    return (
        f'<div class="pictures">{"".join(sides)}</div>'
        f'<details id="captions"><summary>captions</summary>{captions}</details>'
    )


def saved(text: str, failed: bool = False) -> str:
    """The line that says what is on the disk."""
    return f'<div class="{"not-saved" if failed else "saved"}" id="saved_line">{escape(text)}</div>'
