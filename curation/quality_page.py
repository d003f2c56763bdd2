"""The quality report as one HTML page with drawn plots and nothing loaded from elsewhere. Not here: the numbers
(`quality.py`)."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from curation.quality import Quality

STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --ink: #1d2733; --accent: #0f766e; --faint: #8a94a0 }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --ink: #e6e9ec } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15rem 1rem .15rem 0; text-align: left }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif } rect { fill: var(--accent) } line { stroke: var(--faint) }
"""


def page(quality: Quality, name: str) -> str:
    """The whole page."""
    warnings = "".join(f"<li>{escape(text)}</li>" for text in quality.warnings()) or "<li>Nothing stands out.</li>"
    told = "; ".join(
        f"{points:.1f} points where {share} of the pairs separate them"
        for share, points in quality.smallest_difference.items()
    )
    seen = (
        f"{quality.images_seen} images compared: {_groups(quality.same_images)} the same file; look alike: "
        + (", ".join(f"{escape(a)} / {escape(b)} ({bits} bits)" for a, b, bits in quality.alike_images) or "none")
        if quality.images_seen
        else "The images are not at hand, so they were not compared."
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(name)}: quality</title>
<style>{STYLE}</style></head><body>
<h1>{escape(name)}</h1>
<p>{quality.pairs} pairs, {quality.images} images, {quality.components} groups of pairs that share images (the largest has {quality.largest_component}).</p>
<h2>Worth a look</h2><ul>{warnings}</ul>
<h2>How small a difference can it tell?</h2>
<p>Between two models, with 80% power: {escape(told)}. Smaller differences in set accuracy cannot be told with {quality.pairs} pairs. Pairs that share
images make the true values larger.</p>
<h2>Without looking at the image</h2>
{_table(("rule", "set accuracy", "individual accuracy"), [(b.rule, f"{b.set_accuracy:.1f}", f"{b.individual_accuracy:.1f}") for b in quality.blind])}
<p>Both images of a pair share question and options and differ in the answer: an answerer that never looks gets no pair and half of the questions.
Option A is right for the first image in {quality.image_1_is_a} of {quality.pairs} pairs (p = {quality.position_p:.2f} against a half).</p>
<h2>Similarities of the pairs</h2>
<h3>medical encoder</h3>{histogram(quality.sim_med)}<h3>general encoder</h3>{histogram(quality.sim_gen)}
<h2>Categories (images)</h2>{bars(quality.categories)}
<h2>Questions</h2>
<p>Same text: {_groups(quality.repeated_questions)}. Nearly the same: {", ".join(f"{escape(a)} / {escape(b)}" for a, b, _ in quality.alike_questions) or "none"}.
Uneven options: {escape(", ".join(quality.uneven_options)) or "none"}.</p>
<h2>Images</h2><p>{seen}.</p>{bars(quality.often) if quality.often else "<p>No image is used often.</p>"}
</body></html>
"""


def _groups(groups: list[list[str]]) -> str:
    return "; ".join(escape(" = ".join(group)) for group in groups) or "none"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)] + [
        "".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def bars(counts: dict[str, int]) -> str:
    """Horizontal bars with their names and numbers, as SVG."""
    if not counts:
        return "<p>none</p>"
    longest = max(counts.values())
    rows = [
        f'<text x="150" y="{20 * at + 14}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="158" y="{20 * at + 3}" width="{380 * count / longest:.1f}" height="14"/>'
        f'<text x="{164 + 380 * count / longest:.1f}" y="{20 * at + 14}">{count}</text>'
        for at, (name, count) in enumerate(counts.items())
    ]
    return f'<svg viewBox="0 0 600 {20 * len(counts)}" role="img">{"".join(rows)}</svg>'


def histogram(values: Sequence[float], bins: int = 24) -> str:
    """A histogram of cosines as SVG, with its ends, median and largest bin named."""
    counts, edges = np.histogram(values, bins)
    high = max(1, int(counts.max()))
    drawn = "".join(
        f'<rect x="{24 * at:.1f}" y="{110 - 100 * count / high:.1f}" width="22" height="{100 * count / high:.1f}"><title>{count} from {edges[at]:.3f}</title></rect>'
        for at, count in enumerate(counts)
    )
    ends = f'<text x="0" y="128">{edges[0]:.3f}</text><text x="{24 * bins}" y="128" text-anchor="end">{edges[-1]:.3f}</text>'
    middle = (
        f'<text x="{12 * bins}" y="128" text-anchor="middle">median {np.median(values):.3f}, largest bin {high}</text>'
    )
    return f'<svg viewBox="0 0 {24 * bins} 134" role="img"><line x1="0" y1="110" x2="{24 * bins}" y2="110"/>{drawn}{ends}{middle}</svg>'
