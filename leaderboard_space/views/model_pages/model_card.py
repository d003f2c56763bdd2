"""A model's results for its own page elsewhere: a badge per benchmark (SVG) and a table for a model card (Markdown)."""

from __future__ import annotations

import html
from collections.abc import Sequence

from leaderboard_space import sentences
from leaderboard_space.data.identity import Identity
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.html import interval, score_text, text
from leaderboard_space.model_results import Line
from leaderboard_space.sentences import findings

INK = {"better": "#0f766e", "worse": "#a8481f", "no different": "#5b6675", None: "#5b6675"}
LETTER = 6.6
"""Width that is reserved for a character, in pixels, at 11 px: wider than most."""


def badge(line: Line) -> str:
    """The result of a benchmark as a small picture: name, score, verdict. It says its numbers in its title, too."""
    info, score = info_of(line.metric, line.section.family), line.score
    left = f"{line.questions}: {info.label.lower()}"
    sign = "%" if info.unit == "percent" else ""
    right = f"{score_text(score.value, info.unit)}{sign} {_word(line)}".strip()
    one, other = (round(LETTER * len(part)) + 14 for part in (left, right))
    said = f"{left} {right}, 95% interval {interval(score.low, score.high, score.chance)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + other}" height="22" viewBox="0 0 {one + other} 22" role="img" '
        f'aria-label="{_in_svg(said)}">'
        f"<title>{_in_svg(said)}</title>"
        f'<rect width="{one + other}" height="22" rx="4" fill="#1d2733"/>'
        f'<path d="M{one} 0h{other - 4}a4 4 0 0 1 4 4v14a4 4 0 0 1-4 4H{one}z" fill="{INK[score.verdict]}"/>'
        f'<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{one / 2:g}" y="15">{_in_svg(left)}</text><text x="{one + other / 2:g}" y="15">{_in_svg(right)}</text></g></svg>'
    )


def _word(line: Line) -> str:
    guess = "guessing" if line.row.run is None else sentences.RANDOM_RUN
    words = {
        "better": f"better than {guess}",
        "worse": f"worse than {guess}",
        "no different": f"not significantly different from {guess}",
    }
    return words.get(line.score.verdict or "", "")


def _in_svg(said: str) -> str:
    return html.escape(said, quote=True)


def markdown(who: Identity, lines: Sequence[Line]) -> str:
    """A table of the main results, for a model card; no cell can break out of its column."""
    rows = [
        "| Benchmark | Score | 95% interval | Against guessing | Questions | Result |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        info, score = info_of(line.metric, line.section.family), line.score
        result = line.row.entry.result
        source = result.source.table if result.source and result.source.table else result.kind
        verdict = sentences.in_short(
            score.verdict, findings.guess_of(line.row, line.section.family, line.metric), score.chance
        )
        cells = (
            line.questions,
            f"{info.label} {score_text(score.value, info.unit)}",
            interval(score.low, score.high, score.chance),
            verdict,
            f"{line.section.title()}, {line.section.split}",
            source,
        )
        rows.append(f"| {' | '.join(_in_cell(cell) for cell in cells)} |")
    return f"### Reliability of {_in_cell(who.name)}, from the medprobe board\n\n" + "\n".join(rows) + "\n"


def _in_cell(said: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    plain = " ".join(said.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in plain)


def view(who: Identity, lines: Sequence[Line]) -> str:
    """The badges, each with a button that saves it, and the Markdown."""
    badges = "".join(
        f'<li>{badge(line)} <button type="button" class="link" data-act="svg" data-of="badge:{line.section.family}">'
        f"Save SVG<span class=unseen> of {text(line.questions)}</span></button></li>"
        for line in lines
    )
    return (
        '<div class="bar-head"><h3>For a model card</h3>'
        '<button type="button" class="link" data-act="md" data-of="card">Save Markdown</button></div>'
        f'<ul class="badges">{badges}</ul><pre class="command"><code>{text(markdown(who, lines), 6000)}</code></pre>'
    )
