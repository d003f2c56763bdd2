"""ProbMed Table 6: where the diagnosis goes wrong, each step on the images whose earlier steps are right.

See also: the accuracies (`scores.py`), the authors' other figures (`official.py`).
"""

from __future__ import annotations

import numpy as np

from eval_harness.records.result import Score
from eval_harness.scores.grading import Bools, Graded, Ints
from eval_harness.scores.intervals import METHOD, clustered_interval
from eval_harness.scores.nonresponse import nonresponse, withheld

STEPS: dict[str, tuple[str, ...]] = {
    "abnormality": ("modality", "organ"),
    "condition": ("modality", "organ", "abnormality"),
    "position": ("modality", "organ", "abnormality", "condition"),
}
"""Each step with the steps that must be right before it."""


def conditional_errors(graded: Graded, official: bool = False) -> dict[str, dict[str, Score]]:
    """Per step: `accuracy_given_earlier`, and of the images that fail it the shares of each kind of error.

    Abnormality: `wrong_answer`, `refused`. Condition and position: `denies_truth` (a question on what is there answered no),
    `accepts_hallucination` (one on what is not, answered yes), `refused` (no yes or no was read); an image may show several, and the
    shares are of all errors shown, as in the authors' code. That code leaves wrong conditions of images without position questions out of
    the shares, for no stated reason; we count them. Images that were not asked an earlier step are left out, as there.
    Where most responses to a step's questions say nothing, it has no scores but by the `official` reader.
    """
    aspect = graded.questions["aspect"].to_numpy(dtype=object)
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    images = int(graded.case.max(initial=-1)) + 1
    right_of = {name: _all_right(graded, np.flatnonzero(aspect == name), images) for name in set(aspect)}
    cluster = np.zeros(images, np.int64)
    cluster[graded.case] = graded.cluster
    result: dict[str, dict[str, Score]] = {}
    for step, earlier in STEPS.items():
        if step not in right_of or not all(name in right_of for name in earlier):
            continue
        asked, right = right_of[step]
        reached = asked[:, None] & np.logical_and.reduce(
            [right_of[name][0][:, None] & right_of[name][1] for name in earlier]
        )
        rows = np.flatnonzero(aspect == step)
        silent = nonresponse(graded.ends[rows].sum(axis=0))
        scores = {"accuracy_given_earlier": _share((reached & right).mean(axis=1), reached.mean(axis=1), cluster)}
        failed = reached & ~right
        unread = _any(graded, rows, ~graded.answered[rows], images) & failed
        wrong = graded.answered[rows] & ~graded.right[rows]
        if step == "abnormality":
            kinds = {"wrong_answer": _any(graded, rows, wrong, images) & failed, "refused": unread}
        else:
            kinds = {
                "denies_truth": _any(graded, rows, wrong & ~adversarial[rows, None], images) & failed,
                "accepts_hallucination": _any(graded, rows, wrong & adversarial[rows, None], images) & failed,
                "refused": unread,
            }
        shown = np.sum([kind.mean(axis=1) for kind in kinds.values()], axis=0)
        scores |= {name: _share(kind.mean(axis=1), shown, cluster) for name, kind in kinds.items()}
        result[step] = {name: withheld(each, silent, official) for name, each in scores.items()}
    return result


def _all_right(graded: Graded, rows: Ints, images: int) -> tuple[Bools, Bools]:
    """Which images were asked these questions (I,), and where all of them are right (I, S)."""
    asked = np.zeros(images, bool)
    asked[graded.case[rows]] = True
    return asked, ~_any(graded, rows, ~graded.right[rows], images)


def _any(graded: Graded, rows: Ints, holds: Bools, images: int) -> Bools:
    """Where any of the questions `rows` of an image holds: (I, S)."""
    found = np.zeros((images, graded.samples), bool)
    np.logical_or.at(found, graded.case[rows], holds)
    return found


def _share(numerator: np.ndarray, denominator: np.ndarray, cluster: Ints) -> Score:
    n = int((denominator > 0).sum())
    interval = clustered_interval(numerator, denominator, cluster)
    if interval is None:
        return Score(value=None, n=0, n_cases=0)
    return Score(
        value=round(100 * float(numerator.sum()) / float(denominator.sum()), 10),
        low=round(100 * interval.low, 10),
        high=round(100 * interval.high, 10),
        n=n,
        n_cases=n,
        n_effective=round(interval.n_effective, 10),
        interval_method=METHOD,
    )
