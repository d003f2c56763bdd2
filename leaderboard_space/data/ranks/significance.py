"""Test against guessing: exact chance where it is known, else the paper's own run of random answers on the same cells, which is a sample
of guessing, else no test. One rule for every page.

A row of a benchmark's own table is tested by itself (`tested`, `standings.py`); marks of several benchmarks, as on the overview,
are corrected for all of them (`verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.records.result import Result, Score, Verdict
from eval_harness.scores.comparing import ranks
from eval_harness.scores.comparing.unpaired import METHOD, unpaired_difference
from eval_harness.scores.intervals import LEVEL, p_value
from leaderboard_space.data.store.sections import Entry

ALPHA = 1 - LEVEL


def p_against_guessing(score: Score, random_run: Score | None = None) -> float | None:
    """Two-sided p-value of "this model guesses"; None where it cannot be tested.

    `random_run`: what it is tested against where exact chance is not known, the paper's own run of random answers, as two independent
    samples (Agresti & Caffo 2000). Without one, exact chance (the score has a verdict), by the test that the score's interval inverts.
    """
    if score.nonresponse is not None or score.value is None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return None
    if random_run is not None:
        return unpaired_difference(score, random_run)[2]
    if score.verdict is None or score.chance is None or score.n_effective is None:
        return None
    return float(p_value(score.value / 100, score.n_effective, score.chance / 100))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (1979); what is not tested (None) takes no part.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    adjusted = iter(ranks.holm_adjusted(np.array([value for value in p if value is not None])).tolist())
    return [None if value is None else next(adjusted) for value in p]


def verdicts(scores: Sequence[tuple[Score, Score | None, bool]]) -> list[Verdict | None]:
    """The mark of each (score, random run, whether higher is better) at 95 % for all of them together."""
    adjusted = holm([p_against_guessing(score, run) for score, run, _ in scores])
    marks: list[Verdict | None] = []
    for (score, run, higher), p in zip(scores, adjusted, strict=True):
        if p is None:
            marks.append(None)
        elif p >= ALPHA:
            marks.append("no different")
        else:
            guess = run.value if run is not None else score.chance
            above = (score.value or 0.0) > (guess if guess is not None else np.nan)
            marks.append("better" if above == higher else "worse")
    return marks


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
