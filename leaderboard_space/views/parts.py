"""Small pieces that several views draw: heads that sort, the chart of one row, the menu that saves a table."""

from __future__ import annotations

import math

from eval_harness.results import Score
from leaderboard_space.html import text

KINDS = {"proprietary": "proprietary", "open": "open weights", "medical": "medical", "baseline": "baseline"}
"""Kind of model -> what the legend says; a result that does not say is "kind not stated"."""


def column_head(kind: str, said: str, name: str, title: str = "") -> str:
    """A column's head, a button that sorts by it."""
    hint = f' title="{text(title)}"' if title else ""
    return f'<th scope="col" class="{kind}" data-sort="{name}"><button type="button" class="sorts"{hint}>{text(said)}</button></th>'


def sorted_by(value: float | None) -> str:
    """The number a cell is sorted by, in full; nothing where there is none."""
    return f' data-v="{value!r}"' if value is not None and math.isfinite(value) else ' data-v=""'


def dots(score: Score, scale: float, rest: float | None = None) -> str:
    """Interval bar, dot and chance line, positioned in percent of the axis; decoration for eyes, the numbers stand beside it.

    `rest`: what the score is to be seen against, a hollow mark."""

    def place(value: float) -> float:
        return min(max(100 * value / scale, 0.0), 100.0)

    parts = ""
    if score.chance is not None and math.isfinite(score.chance):
        parts += f'<i class="chance" style="left:{place(score.chance):.2f}%"></i>'
    if score.low is not None and score.high is not None:
        left, right = place(score.low), place(score.high)
        parts += f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if rest is not None and math.isfinite(rest):
        parts += f'<i class="rest" style="left:{place(rest):.2f}%"></i>'
    if score.value is not None and math.isfinite(score.value):
        parts += f'<i class="pt" style="left:{place(score.value):.2f}%"></i>'
    return f'<span class="track" aria-hidden="true">{parts}</span>'


def files(table: str) -> str:
    """What saves a table: a small disclosure with a button per form."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="{table}">{said}</button>'
        for form, said in (("csv", "CSV"), ("json", "JSON"))
    )
    return f'<details class="save" data-keep="save-{table}"><summary>Save</summary><span>{buttons}</span></details>'
