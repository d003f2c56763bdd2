"""Draw the figures of docs/statistics.md and docs/sight.md.

    python benchmarks/scoring/statistics_pictures.py

The numbers are computed as on the board, from simulated answers with a fixed seed.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from eval_harness.records.result import ARMS
from eval_harness.scores.comparisons import (
    OutcomeMatrix,
    PairwiseComparisons,
    RankRanges,
    compare_pairwise,
    compute_rank_ranges,
)
from eval_harness.scores.intervals import Interval, clustered_interval, printed_interval
from eval_harness.store.sight import compute_sight

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAIRS, GROUPS = 176, (25, 20, 18, 8, 6, 5, 5, 5, 5, 4, 4, *(3,) * 6, *(2,) * 10, *(1,) * 33)
"""MediConfusion's number of pairs, and the sizes of the 60 groups of pairs that share images."""
SCORE, GUESS = 30.0, 25.0
SKILLS = (0.62, 0.52, 0.49, 0.46, 0.43, 0.26)
SEED = 10
INK, SOFT, BLUE, TEAL, ORANGE = "#1d2733", "#5b6675", "#2456a6", "#0f766e", "#a8481f"
LEFT, RIGHT, WIDTH = 330.0, 675.0, 900


def draw_intervals() -> str:
    """Draw the interval of a score of 30 %, from few cases to many."""
    rows = [
        ("20 cases", printed_interval(SCORE, 20)),
        (f"{PAIRS} pairs that share images", clustered_score()),
        (f"{PAIRS} pairs, no image shown twice", printed_interval(SCORE, PAIRS)),
        ("1,000 cases", printed_interval(SCORE, 1000)),
    ]
    elements = [
        f'<line x1="{_x(GUESS)}" x2="{_x(GUESS)}" y1="40" y2="228" stroke="{SOFT}" stroke-dasharray="4 4"/>'
        f'<text x="{_x(GUESS)}" y="30" text-anchor="middle" fill="{SOFT}">guessing: 25 %</text>'
    ]
    for row, (name, interval) in enumerate(rows):
        y, low, high = 66 + 46 * row, 100 * interval.low, 100 * interval.high
        sure = "above guessing" if low > GUESS else "may be guessing"
        worth = ""
        if "share" in name:
            worth_text = f"worth {interval.n_effective:.0f} independent ones"
            worth = f'<text x="20" y="{y + 22}" fill="{SOFT}" font-size="12">{worth_text}</text>'
        elements.append(
            f'<text x="20" y="{y + 5}">30 % of {name}</text>{worth}<path d="M{_x(low)} {y}H{_x(high)}" stroke="{BLUE}" stroke-width="7" '
            f'stroke-linecap="round" opacity=".35"/><circle cx="{_x(SCORE)}" cy="{y}" r="6" fill="{BLUE}"/>'
            f'<text x="{RIGHT + 12}" y="{y - 3}">{low:.0f} to {high:.0f}</text>'
            f'<text x="{RIGHT + 12}" y="{y + 14}" fill="{SOFT}" font-size="12">{sure}</text>'
        )
    return _svg(
        270,
        "The 95 % interval of a score of 30 % from 20, 176 and 1,000 cases",
        [*elements, _axis(228)],
    )


def clustered_score() -> Interval:
    """Return the interval of a score of 30 % on MediConfusion's pairs.

    Pairs on the same images are correlated by .3.
    """
    rng, n_hits = np.random.default_rng(SEED), round(SCORE * PAIRS / 100)
    cluster = np.repeat(np.arange(len(GROUPS)), GROUPS)
    share, correlation = SCORE / 100, 0.3
    a, b = (mean * (1 - correlation) / correlation for mean in (share, 1 - share))
    hits = np.zeros(PAIRS)
    # Draw until the score is exactly the one in the figure.
    while hits.sum() != n_hits:
        hits = (rng.random(PAIRS) < rng.beta(a, b, len(GROUPS))[cluster]).astype(float)
    interval = clustered_interval(hits, np.ones(PAIRS), cluster)
    assert interval is not None
    return interval


def simulate_models() -> tuple[PairwiseComparisons, RankRanges]:
    """Draw the outcomes of six models on the same 176 pairs and compare them as the board does."""
    rng = np.random.default_rng(SEED)
    cluster = np.repeat(np.arange(len(GROUPS)), GROUPS)
    ease = rng.random(len(GROUPS))[cluster]  # pairs on the same images share their difficulty
    draw = 0.8 * rng.random((len(SKILLS), PAIRS)) + 0.2 * ease
    # The thresholds at which the models' expected scores are SKILLS.
    limit = np.quantile(0.8 * rng.random(100_000) + 0.2 * rng.random(100_000), SKILLS)
    right = (draw < limit[:, None]).astype(np.float32)
    right = right[np.argsort(-right.sum(axis=1))]  # A is the best
    outcomes = OutcomeMatrix(
        models=tuple("ABCDEF"), metric="", numerator=right, denominator=np.ones_like(right), cluster=cluster,
        units=np.arange(PAIRS).astype(object), paired=True,
    )  # fmt: skip
    comparisons = compare_pairwise(outcomes)
    return comparisons, compute_rank_ranges(comparisons.value, comparisons.p)


def draw_ranks() -> str:
    """Draw six models with scores and ranks, and the comparison of one of them with the others."""
    comparisons, ranges = simulate_models()
    explained = 2  # the model explained in the picture
    elements = ['<text x="20" y="34" fill="#5b6675">Model</text><text x="110" y="34" fill="#5b6675">Rank</text>']
    elements.append(f'<text x="{RIGHT + 12}" y="34" fill="{SOFT}">beside {comparisons.models[explained]}</text>')
    for model in range(len(comparisons.models)):
        y = 62 + 38 * model
        best_rank, worst_rank = int(ranges.best_rank[model]), int(ranges.worst_rank[model])
        word, ink = "", INK
        if model != explained:
            word, ink = (
                ("better", TEAL) if comparisons.value[model] > comparisons.value[explained] else ("worse", ORANGE)
            )
            word, ink = (
                (f"significantly {word}", ink)
                if ranges.differs[model, explained]
                else ("no significant difference", SOFT)
            )
        weight = ' font-weight="bold"' if model == explained else ""
        rank = str(best_rank) if best_rank == worst_rank else f"{best_rank} to {worst_rank}"
        elements.append(
            f'<text x="20" y="{y + 5}"{weight}>{comparisons.models[model]}</text><text x="110" y="{y + 5}"{weight}>{rank}</text>'
            f'<circle cx="{_x(comparisons.value[model])}" cy="{y}" r="6" fill="{BLUE if model == explained else ink}"/>'
            f'<text x="{_x(comparisons.value[model]) + 12:.1f}" y="{y + 5}" font-size="13">{comparisons.value[model]:.0f} %</text>'
            f'<text x="{RIGHT + 12}" y="{y + 5}" fill="{ink}">{word}</text>'
        )
    return _svg(318, "Six models with the ranks they may hold", [*elements, _axis(278)])


LOOKS = (("A", 0.35, 0.3, False), ("B", 0.05, 0.5, False), ("C", 0.2, 0.15, True))
"""Simulated models: name, share of questions answered from the image, share answered from the text
alone, and whether the model declines without an image.
"""


def draw_sight() -> str:
    """Draw three models on 1,000 questions with four options, with and without the right image."""
    rng, n = np.random.default_rng(SEED), 1000
    elements = [
        f'<text x="20" y="34" fill="{SOFT}">Model</text><text x="{RIGHT + 12}" y="34" fill="{SOFT}">from the image</text>'
    ]
    for at, (name, seen, text, declines) in enumerate(LOOKS):
        text_correct = (rng.random(n) < text) | (rng.random(n) < 0.25)
        frames = {}
        for image in ("real", *ARMS):
            # In each run, one question in ten is answered again: real models vary, too.
            again = np.where(rng.random(n) < 0.1, (rng.random(n) < text) | (rng.random(n) < 0.25), text_correct)
            right = again | (rng.random(n) < seen) if image == "real" else again & ~(declines and image != "swapped")
            units = np.arange(n).astype(str).astype(object)
            frames[image] = pd.DataFrame(
                {
                    "metric": "m",
                    "unit": units,
                    "cluster": np.arange(n),
                    "numerator": right.astype(float),
                    "denominator": 1.0,
                }
            )
        sight = compute_sight(frames.pop("real"), frames, "m")
        y = 66 + 50 * at
        elements.append(
            f'<text x="20" y="{y + 5}">{name}</text><path d="M{_x(sight.arms[sight.best_arm].score)} {y}H{_x(sight.score)}" '
            f'stroke="{BLUE}" stroke-width="3" opacity=".35"/>'
        )
        for arm in sight.arms.values():
            best = arm is sight.arms[sight.best_arm]
            ink = BLUE if best else "#c3cad4"
            elements.append(
                f'<circle cx="{_x(arm.score)}" cy="{y}" r="{6 if best else 4}" fill="#fff" stroke="{ink}" stroke-width="2"/>'
            )
        sees = "sees" if sight.sees else "not shown to see"
        elements.append(
            f'<circle cx="{_x(sight.score)}" cy="{y}" r="6" fill="{BLUE}"/>'
            f'<text x="60" y="{y + 5}">{sight.score:.0f} %</text>'
            f'<text x="{RIGHT + 12}" y="{y - 3}">{sight.value:.0f} points ({sight.low:.0f} to {sight.high:.0f})</text>'
            f'<text x="{RIGHT + 12}" y="{y + 14}" fill="{SOFT}" font-size="12">{sees}</text>'
        )
    return _svg(
        240,
        "Scores of three models with the right images and without them",
        [*elements, _axis(198)],
    )


def _x(percent: float) -> float:
    """Return the x coordinate of a percentage from 0 to 80."""
    return round(LEFT + (RIGHT - LEFT) * percent / 80, 1)


def _axis(y: float) -> str:
    """Draw the axis of percentages."""
    ticks = "".join(
        f'<text x="{_x(at)}" y="{y + 22}" text-anchor="middle" font-size="12" fill="{SOFT}">{at}{" %" if at == 80 else ""}</text>'
        f'<path d="M{_x(at)} {y}v5" stroke="{SOFT}"/>'
        for at in (0, 20, 40, 60, 80)
    )
    return f'<path d="M{LEFT} {y}H{RIGHT}" stroke="{SOFT}"/>{ticks}'


def _svg(height: int, title: str, parts: list[str]) -> str:
    """Wrap the elements of a figure in an SVG document."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}" '
        f'font-family="system-ui, sans-serif" font-size="15" fill="{INK}">\n<title>{title}</title>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>\n{body}\n</svg>\n'
    )


PICTURES = {"one_score.svg": draw_intervals, "ranks.svg": draw_ranks, "sight.svg": draw_sight}


def main() -> None:
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
        sys.stdout.write(f"{DOCS / name}\n")


if __name__ == "__main__":
    main()
