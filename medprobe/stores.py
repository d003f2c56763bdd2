"""Submit answers to a results store, load the results of one as a table, compare two results."""

from __future__ import annotations

import csv
import os
import warnings
from importlib.resources import files
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.interop.convert import submit_any
from eval_harness.store.comparison import Side, load_side, score_differences
from eval_harness.store.scan import scan_store
from eval_harness.store.submit import Submitted
from eval_harness.store.table import tidy

Source = str | os.PathLike[str]


def submit(
    what: Source,
    to: Source,
    *,
    benchmark: str | None = None,
    model: str | None = None,
    data: Source | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    with_questions: bool = False,
    account: str | None = None,
) -> Submitted:
    """Add answers to a results store, with their scores derived again: a folder, or ORG/NAME on the Hub (one pull request).

    `what`: a run or its folder; or a file of answers, or a log of another harness, which needs `benchmark` and `model` (the display name)
    and may need `data` and `split`; `extraction` (ours, official) says how it is read, `kind` what the model is (open, proprietary,
    medical). `reproduced`: you own the store and ran the model yourself; `with_questions`: the questions are stored, too. `account`: who
    submits to a folder [this user].

    Returns where it is (`location`), whether it is `new` there, and the `submission` (`result`, `notes`, `flags`). The same answers are
    added once. Raises BadInput with every problem found; then nothing is added.
    """
    return submit_any(
        Path(what), str(os.fspath(to)), benchmark, model, None if data is None else os.fspath(data), split,
        extraction=extraction, kind=kind, reproduced=reproduced, with_questions=with_questions, account=account,
        published=published_names(),
    )  # fmt: skip


def published_names() -> dict[str, str | None]:
    """Names in the papers' tables -> kind, with which the name of a submitted model is compared."""
    table = files("leaderboard_space").joinpath("published", "models.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    return {
        name: row["kind"] or None
        for row in rows
        for column, name in row.items()
        if name and column not in ("kind", "parameters")
    }


def load_results(store: Source | None = None, *, published: bool = False) -> pd.DataFrame:
    """The results of a store (a folder that holds `results/`, or ORG/NAME on the Hub), and those of the papers, in one table.

    One row per result, facet value and metric, overall scores first: `benchmark`, `split`, `model`, `kind` (measured, published,
    aggregate), `method`, `prompt`, `variant` (what else sets a result apart), `metric`, `facet` and `facet_value` (missing for overall
    scores), `value` with its 95 % interval `low` to `high` (percent, or a count), `n`, `n_cases`, `n_effective`, `no_score` (why there is
    none), `source`, `table`, `note`. `published`: the papers' numbers follow; without a `store` they are all.

    A file of the store that cannot be read is left out with a warning. Raises BadInput where there is no such store.
    """
    if store is None and not published:
        raise BadInput("load_results: name a store, or say published=True for the papers' numbers.")
    stored, problems = scan_store(os.fspath(store)) if store is not None else ([], [])
    for problem in problems:
        warnings.warn(f"set aside: {problem}", stacklevel=2)
    results = [entry.result for entry in stored]
    if published:
        from leaderboard_space.data.published_results import published_results

        results += published_results()
    return tidy(results)


def compare(a: Source, b: Source) -> pd.DataFrame:
    """Two results on the same questions: a run or its folder, a result.json, or "published:MODEL/BENCHMARK/METHOD/Table 1".

    One row per metric that both have: `metric`; `a`, `b`, `difference` (a - b), in percent (or counts); `low`, `high`, the 95 % interval
    of the difference in percent points; `p`, two-sided; `test`, paired by case where both have answers to the same questions, else as if
    independent; `note`, why two values are not compared. What there is not is missing.

    Raises BadInput where one is no result, or they are of different benchmarks.
    """
    return score_differences(side_of(a), side_of(b))


def side_of(source: Source) -> Side:
    """One side of a comparison. Raises BadInput where it is no result."""
    from leaderboard_space.data.published_results import published_results

    return load_side(os.fspath(source), published_results)
