"""Test against guessing: exact chance where it is known, else the paper's own run of random answers on the same cells, which is a sample
of guessing, else no test. One rule for every page.

Every score is tested by itself, at 95 %, so that its mark agrees with its interval wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.records.result import Result, Score
from eval_harness.scores.intervals import LEVEL
from eval_harness.scores.unpaired import METHOD, unpaired_difference
from leaderboard_space.data.store.sections import Entry

ALPHA = 1 - LEVEL


def is_random_run(result: Result) -> bool:
    """True if a result is a paper's own run of random answers."""
    return result.kind == "published" and result.model.kind == "baseline"


def random_run(entries: Iterable[Entry], scores: Mapping[str, Score]) -> Score | None:
    """The score of the paper's random run among these entries. `scores`: entry key -> score, all of one metric and selection."""
    found = (scores.get(entry.key) for entry in entries if is_random_run(entry.result))
    return next((score for score in found if score is not None and score.value is not None and score.n_cases > 0), None)


def tested(score: Score, run: Score | None, info: MetricInfo) -> Score | None:
    """The score with its verdict against a random run, which is its `chance` then; None where it is not tested so: exact chance is known,
    there is no run, most of its responses say nothing, or neither end of the metric is good.

    Two independent samples (Agresti and Caffo 2000), by itself, at 95 %. The interval is that of the tested difference, counted from the
    run's score, so that it excludes the run exactly where the verdict does: both samples' uncertainty is in it.
    """
    if run is None or run.value is None or score.verdict is not None or score.value is None or score.n_cases <= 0:
        return None
    if score.nonresponse is not None:
        return None
    if info.unit != "percent" or info.higher_is_better is None:
        return None
    low, high, p = unpaired_difference(score, run)
    found = "no different"
    if p < ALPHA:
        found = "better" if (score.value > run.value) == info.higher_is_better else "worse"
    low, high = (
        max(run.value + min(low, score.value - run.value), 0.0),
        min(run.value + max(high, score.value - run.value), 100.0),
    )
    return score.model_copy(
        update={"chance": run.value, "verdict": found, "low": low, "high": high, "interval_method": METHOD}
    )
