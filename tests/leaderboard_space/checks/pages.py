"""Every page of the board over a generated store, held against scores computed from its raw files.

`python -m tests.leaderboard_space.checks.pages --stores 200 --seed 7` checks many; a few are a test (`test_generated_stores.py`).
See also: the stores (`generated.py`), what a sentence claims (`claims.py`), the first screen, models and topics (`front.py`),
comparisons (`comparison.py`).
"""

from __future__ import annotations

import argparse
import html
import json
import re
import tempfile
from pathlib import Path

import pandas as pd

from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Result
from eval_harness.store.submission import Submission
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.service import Service
from leaderboard_space.views import submit
from tests.leaderboard_space.checks.breakdowns import check_breakdown, check_plots
from tests.leaderboard_space.checks.claims import (
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.checks.comparison import check_comparison
from tests.leaderboard_space.checks.front import check_front
from tests.leaderboard_space.checks.panels import check_panel
from tests.leaderboard_space.generated import (
    FACET,
    Raw,
    make,
    printed,
    raw,
)


def check_store(store: Path, family: str, extra: list[Result]) -> int:
    """Every page of the board over a store; returns how many pages were checked. Raises AssertionError."""
    board = Board(store, extra)
    service = Service(board)
    pages, truths = 0, []
    for section in board.snapshot.sections[family]:
        board.outcomes(section)
        truth = raw(store, section)
        truths.append(truth)
        whole = service.view({"format": family, "section": section.key, "shown": "all"})
        metrics = re.findall(
            r'<option value="([^"]*)"', re.search(r'<select data-name="metric">(.*?)</select>', whole["html"])[1]
        )
        labels = {label for found in truth.values() for label in found.cells.get(FACET.get(family, ""), {})}
        every = {
            label for label in labels if _holds_everything(family, label, truth)
        }  # selecting it is selecting nothing
        for metric in metrics:
            for label in [None, *sorted(labels - every)[:1]]:
                branches = [[FACET[family], label]] if label is not None else []
                asked = {
                    "format": family,
                    "section": section.key,
                    "shown": "all",
                    "metric": metric,
                    "branches": branches,
                }
                shown = service.view(asked)
                assert shown["state"]["metric"] in METRICS, shown["state"]
                if shown["state"]["metric"] == metric:
                    check_panel(
                        check_words(shown["html"]), truth, metric, (FACET[family], label) if label else None, family
                    )
                    pages += 1
        check_breakdown(service, family, section, truth)
        check_comparison(board, family, section, truth)
        check_plots(service, family, section)
        check_details(service, family, section, truth)
        pages += 3
    if not board.snapshot.sections[family]:
        assert "No results yet." in service.view({"format": family})["html"]
    else:
        check_front(service, family, truths)
    return pages


def check_details(service: Service, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """The list of what is known of a result, and what Submit would say of it."""
    for found in [found for found in truth.values() if found.units is not None][:2]:
        check_submitted(found, family)
    for key, found in truth.items():
        listed = dict(
            re.findall(
                r"<dt>(.*?)</dt><dd>(.*?)</dd>", service.detail({"format": family, "section": section.key, "key": key})
            )
        )
        said = {
            name: int(n.replace(",", "")) for n, name in re.findall(r"(\d[\d,]*) ([a-z]+)", listed.get("Answers", ""))
        }
        assert said == {name: n for name, n in found.result.statuses.items() if n}, (key, listed)
        assert int(listed["Questions"].partition(", ")[0].replace(",", "")) == found.result.benchmark.questions
        assert ("Submitted by" in listed) == (found.account is not None) and ("Withdrawn" in listed) == found.withdrawn
        assert html.unescape(listed["Model"]).startswith(found.result.model.name)
        assert listed.get("Derive version") == (
            str(found.result.derive_version) if found.result.kind == "measured" else None
        )


def _holds_everything(family: str, label: str, truth: dict[str, Raw]) -> bool:
    """True if every question carries a label."""
    held = [
        (raw.cells.get(FACET[family], {}).get(label, {}), raw.scores) for raw in truth.values() if raw.units is not None
    ]
    return any("irrelevant" in cell and cell["irrelevant"].n == whole["irrelevant"].n for cell, whole in held)


def check_submitted(found: Raw, family: str) -> None:
    """What the tab Submit says of a result's scores and responses, and how it counts problems."""
    result, empty = found.result, pd.DataFrame()
    unknown = [f"a.csv, line {at}: question 'q{at}' is unknown" for at in range(len(found.scores) % 9)]
    problems = [*unknown, *["a.csv: is cut off"] * (result.benchmark.questions % 2)]
    refused = plain(submit.report(Submission("run", None, result, empty, empty, problems=problems)))  # type: ignore[arg-type]
    assert ("cannot be submitted as it is" in refused) == bool(problems), refused
    assert ("Partial: " in refused) == bool(result.benchmark.selection), refused
    again = re.findall(r"\b(\d+) more times?", refused)
    assert sum(map(int, again)) == len(problems) - len({line[:7] for line in problems}), refused
    page = submit.report(Submission("run", None, result, empty, empty))  # type: ignore[arg-type]
    named = {info_of(metric, family).label: score for metric, score in found.scores.items()}
    cells = "".join("<td>(.*?)</td>" for _ in range(5))
    for label, value, ends, chance, n, verdict in re.findall(rf'<tr><th scope="row">(.*?)</th>{cells}</tr>', page):
        score = named[html.unescape(label)]
        assert score.value is None or rounds_to(value.removesuffix(" %"), score.value), (label, value, score)
        if score.low is not None and score.high is not None:
            low, high = ends.split("–")
            assert rounds_to(low, score.low) and rounds_to(high, score.high), (label, ends, score)
        assert chance == "–" if score.chance is None else rounds_to(chance, score.chance), (label, chance, score)
        assert n == f"{score.n:,}" + (f" ({score.n_cases:,} cases)" if score.n != score.n_cases else ""), (label, n)
        words = {"better": "significantly better", "worse": "significantly worse", "no different": "not significantly"}
        assert verdict.startswith(words.get(score.verdict or "", "")) and bool(verdict) == bool(score.verdict), label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    pages = 0
    for seed in range(given.seed, given.seed + given.stores):
        with tempfile.TemporaryDirectory() as folder:
            family = make(Path(folder), seed)
            try:
                pages += check_store(Path(folder), family, printed(family, seed))
            except Exception as error:
                raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    print(json.dumps({"stores": given.stores, "pages": pages}))


if __name__ == "__main__":
    main()
