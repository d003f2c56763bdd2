"""Self-contained HTML pages with inline plots.

There is one with the quality report (`quality.py` computes its numbers), and one with histograms of
the pairs' cosines, as in MediConfusion's figure 8 (appendix F).
"""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curation.report.quality import PairQuality, QualityReport
from dataset_builders.files import replace_file, write_json

REPORT_STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --ink: #1d2733; --accent: #0f766e; --faint: #8a94a0 }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --ink: #e6e9ec } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15rem 1rem .15rem 0; text-align: left }
.wide { overflow-x: auto } @media (max-width: 480px) { td, th { padding-right: .5rem; font-size: 15px } }
svg { display: block; width: 100%; height: 8rem } rect { fill: var(--accent) } line { stroke: var(--faint) }
.ends { display: flex; justify-content: space-between; font-size: 14px; font-variant-numeric: tabular-nums }
"""


def render_report(quality: QualityReport) -> str:
    """Render the quality report as an HTML page."""
    warnings = "".join(f"<li>{escape(text)}</li>" for text in quality.warnings()) or "<li>Nothing stands out.</li>"
    rows = [(rule, *row) for rule, scores in quality.rules.items() for row in score_rows(scores)]
    image_note = (
        f"{quality.images_seen} of {quality.images} images were compared by their pixels. The same "
        "picture: "
        f"{format_groups(quality.same_images)}."
        if quality.images_seen
        else "The dataset was built without images, so they were not compared."
    )
    blind = ""
    if quality.blind_model is not None:
        model = quality.blind_model
        statuses = ", ".join(f"{count} {status}" for status, count in model.statuses.items() if count)
        blind = (
            f"<h3>{escape(model.model)}, shown no image (prompt {escape(model.prompt)}, "
            f"temperature {model.temperature:g}: {statuses})</h3>"
            + render_table(("asked without images", *SCORE_TABLE_HEADINGS), score_rows(model.scores))
        )
    return _render_document(
        f"{quality.name}: quality",
        f"""<h1>{escape(quality.name)}</h1>
<p>{quality.questions} questions ({escape(quality.split)}) on {quality.images} images, scored as {escape(quality.family)}.</p>
<h2>Worth a look</h2><ul>{warnings}</ul>
<h2>Answers without the image</h2>
{render_table(("answerer", "metric", *SCORE_TABLE_HEADINGS), rows)}{blind}
{_render_pairs(quality.of_pairs) if quality.of_pairs else ""}
<h2>Questions</h2><p>Asked more than once of one image: {format_groups(quality.repeated_questions)}.</p>
<h2>Images</h2><p>{image_note}</p>""",
    )


def _render_document(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>
<style>{REPORT_STYLE}</style></head><body>
{body}
</body></html>
"""


def write_histograms(cosines: Mapping[str, np.ndarray], out: Path) -> None:
    """Write a page with a histogram of each encoder's cosines.

    Args:
        cosines: encoder -> cosine of the two images of each pair; the pairs are the same for all
            encoders.
        out: page to write (.html).
    """
    count = len(next(iter(cosines.values())))
    plots = "".join(
        f"<h2>{escape(encoder)}</h2>{render_histogram(encoder_cosines)}" for encoder, encoder_cosines in cosines.items()
    )
    heading = f"<h1>Similarity of {count} pairs</h1><p>Cosine of the two images of each pair, by encoder.</p>"
    replace_file(out, _render_document("Similarity of the pairs", heading + plots).encode())


SCORE_TABLE_HEADINGS = ("%", "95% interval", "chance", "than chance")


def _render_pairs(quality: PairQuality) -> str:
    """Render the section on MediConfusion's pairs."""
    differences = "; ".join(
        f"{'no difference' if points is None else f'{points:.1f} points'} if exactly one of them is right on {escape(share)} of the pairs"
        for share, points in quality.smallest_difference.items()
    )
    return f"""<p>Both images of a pair have the same question and options but different answers, so answering without the images gets no pair right, but half of the
    questions. Option A is right for the first image in {quality.image_1_is_a} of {quality.pairs} pairs (p = {quality.position_p:.2f} against a half).</p>
<h2>Smallest detectable difference</h2>
<p>{quality.pairs} pairs, {quality.components} groups of pairs that share images or patients (the largest has {quality.largest_component}):
equivalent to {quality.effective_pairs:.1f} independent pairs if all pairs of a group are answered alike.</p>
<p>Detectable between two models with 80% power: {differences}. Smaller differences in set accuracy cannot be detected with this number of independent pairs.</p>
<h2>Similarities of the pairs</h2>
<h3>medical encoder</h3>{render_histogram(quality.sim_med)}<h3>general encoder</h3>{render_histogram(quality.sim_gen)}"""


def score_rows(scores: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Format scores as rows for `render_table`.

    Args:
        scores: metric -> value, low, high, chance, verdict and nonresponse.

    Returns:
        Name, value, 95% interval, chance and verdict of each score; percentages have one decimal.
    """
    names = {
        "set_accuracy": "set accuracy",
        "individual_accuracy": "individual accuracy",
        "share_A": "answers A",
    }
    rows: list[tuple[str, ...]] = []
    for metric, numbers in scores.items():
        interval = "" if numbers["low"] is None else f"{numbers['low']:.1f} to {numbers['high']:.1f}"
        chance = "" if numbers["chance"] is None else f"{numbers['chance']:.1f}"
        # A score is withheld if too many questions have no answer; it is undefined if no case
        # counts for the metric.
        missing = "no score" if numbers["nonresponse"] is not None else "undefined"
        percentage = missing if numbers["value"] is None else f"{numbers['value']:.1f}"
        rows.append(
            (
                names.get(metric, metric),
                percentage,
                interval,
                chance,
                (numbers["verdict"] or "").replace("_", " "),
            )
        )
    return rows


def format_groups(groups: list[list[str]]) -> str:
    """Format groups of ids as HTML: `a = b; c = d`, or `none`."""
    return "; ".join(escape(" = ".join(group)) for group in groups) or "none"


def render_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Render an HTML table with escaped cells, or "none" if there are no rows.

    Args:
        head: names of the columns.
        rows: cells (texts or numbers).
    """
    table = pd.DataFrame(list(rows), columns=list(head)).to_html(index=False, border=0)
    return f'<div class="wide">{table}</div>' if rows else "<p>none</p>"


def render_histogram(values: Sequence[float] | np.ndarray, bins: int = 24) -> str:
    """Render a histogram of cosines as SVG; its range, median and largest bin are given as text.

    Args:
        values: the cosines.
        bins: number of bins.
    """
    counts, edges = np.histogram(values, bins)
    largest = max(1, int(counts.max()))
    bars = "".join(
        f'<rect x="{24 * k:.1f}" y="{110 - 100 * count / largest:.1f}" width="22" '
        f'height="{100 * count / largest:.1f}">'
        f"<title>{count} from {edges[k]:.3f} to {edges[k + 1]:.3f}</title></rect>"
        for k, count in enumerate(counts)
    )
    # Text stays outside the SVG: preserveAspectRatio="none" would stretch it.
    ends = (
        f"<span>{edges[0]:.3f}</span><span>median {np.median(values):.3f}, largest bin "
        f"{largest}</span>"
        f"<span>{edges[-1]:.3f}</span>"
    )
    axis = f'<line x1="0" y1="110" x2="{24 * bins}" y2="110"/>'
    return (
        f'<svg viewBox="0 0 {24 * bins} 112" preserveAspectRatio="none" '
        f'role="img">{axis}{bars}</svg>'
        f'<div class="ends">{ends}</div>'
    )


def write_quality_report(quality: QualityReport, out: Path) -> None:
    """Write the report as a page, and its numbers to a .json file next to it.

    Args:
        quality: the report.
        out: page to write (.html).
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, render_report(quality).encode())
    numbers = asdict(quality) | {"warnings": quality.warnings()}
    # The file calls the family "format", as `medprobe build` does.
    numbers["format"] = numbers.pop("family")
    write_json(out.with_suffix(".json"), numbers, ensure_ascii=True)
