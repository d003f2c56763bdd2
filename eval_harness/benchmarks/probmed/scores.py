"""ProbMed: a hit = every question of an aspect on an image right (paper section 4, Tables 4, 5 and the appendix).

The authors' scorer averages image types with weights that count, for condition and position, also the images that have no such
question. `condition`, `position`, `overall` (and their `_without_adversarial`) carry these weights, so that they are the paper's
numbers; we recommend `<name>_reweighted`, which divides by the images that have such questions. Three more defects of that scorer
do not touch complete answers in file order and are not reproduced.

See also: the errors of Table 6 (`errors.py`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.probmed.errors import conditional_errors
from eval_harness.records.result import Breakdown
from eval_harness.scores.grading import Floats, Graded, Ints, make_units

FORMAT = "probmed"
WEIGHTED = ("condition", "position")
"""Aspects whose weights count images without such questions."""


def more_breakdowns(graded: Graded, official: bool) -> Breakdown:
    """The errors of Table 6 per aspect; there `refused` is a share of errors."""
    return {"aspect": conditional_errors(graded, official)}


def units(graded: Graded) -> pd.DataFrame:
    """One row per (aspect, image); `overall` repeats the rows of the aspects.

    `without_adversarial` of an image are its questions on what is really there; a normal image, whose only condition question is
    an adversarial one, keeps that (as the authors' scorer does). Chance is (1/2)^questions: the paper prints 35.67 for condition
    and 36.48 for position; the first is a mixture over images as ours, the second cannot be, since every image with position
    questions has at least two (so at most 25).
    """
    for column in ("aspect", "adversarial", "image_type"):
        if column not in graded.questions.columns:
            raise BadInput(f"questions: the column {column} is missing, which the format probmed needs.")
    kind = pd.factorize(graded.questions["image_type"])[0]
    one_per_image = np.unique(graded.case, return_index=True)[1]
    images_of_type = np.bincount(kind[one_per_image] + 1, minlength=kind.max(initial=-1) + 2)[kind + 1].astype(float)
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    frames: list[pd.DataFrame] = []
    everything: dict[str, list[pd.DataFrame]] = {"overall": [], "overall_without_adversarial": []}
    for aspect in ASPECTS:
        rows = np.flatnonzero((graded.questions["aspect"] == aspect).to_numpy())
        kinds = [(aspect, rows)]
        if aspect != "abnormality":
            kinds.append((f"{aspect}_without_adversarial", _without_adversarial(graded, rows, adversarial)))
        for metric, chosen in kinds:
            first, hit, guess, ends = _hits(graded, chosen)
            weight = _official_weight(kind, first, images_of_type) if aspect in WEIGHTED else np.ones(len(first))
            whole = "overall" if metric == aspect else "overall_without_adversarial"
            variants = [(metric, weight, whole)]
            if aspect in WEIGHTED:
                variants.append((f"{metric}_reweighted", np.ones(len(first)), f"{whole}_reweighted"))
            else:
                everything.setdefault(f"{whole}_reweighted", []).append(
                    _renamed(_rows(graded, metric, first, hit, guess, weight, ends), f"{whole}_reweighted", aspect)
                )
            for name, weights, sum_name in variants:
                frame = _rows(graded, name, first, hit, guess, weights, ends)
                frames.append(frame)
                everything.setdefault(sum_name, []).append(_renamed(frame, sum_name, aspect))
    return pd.concat([*frames, *(frame for parts in everything.values() for frame in parts)], ignore_index=True)


def _rows(
    graded: Graded, metric: str, first: Ints, hit: Floats, guess: Floats, weight: Floats, ends: Ints
) -> pd.DataFrame:
    images = graded.columns["case_id"][first]
    return make_units(FORMAT, graded, metric, first, hit * weight, weight, guess * weight, images, ends=ends)


def _renamed(frame: pd.DataFrame, metric: str, aspect: str) -> pd.DataFrame:
    names = pd.Series([f"{unit}/{aspect}" for unit in frame["unit"].to_numpy()], index=frame.index, dtype=object)
    return frame.assign(metric=pd.Series(metric, index=frame.index, dtype=object), unit=names)


def _without_adversarial(graded: Graded, rows: Ints, adversarial: np.ndarray) -> Ints:
    """The questions that are not adversarial; all of them for an image that has only adversarial ones."""
    plain = rows[~adversarial[rows]]
    unpaired = rows[~np.isin(graded.case[rows], graded.case[plain])]
    return np.sort(np.concatenate([plain, unpaired]))


def _hits(graded: Graded, rows: Ints) -> tuple[Ints, Floats, Floats, Ints]:
    """Per image with such questions: one of its rows, the share of samples in which all are right, the chance of that, how the responses
    ended."""
    order = rows[np.argsort(graded.case[rows], kind="stable")]
    if not len(order):
        return order, np.zeros(0), np.zeros(0), graded.ends[:0]
    starts = np.flatnonzero(np.r_[True, np.diff(graded.case[order]) != 0])
    hit = np.logical_and.reduceat(graded.right[order], starts, axis=0).mean(axis=1)
    ends = np.add.reduceat(graded.ends[order], starts, axis=0)
    return order[starts], hit, np.multiply.reduceat(graded.guess[order], starts), ends


def _official_weight(kind: Ints, first: Ints, images_of_type: Floats) -> Floats:
    """Images of the type / images of the type with such questions: the authors' weight, spread over the latter. `kind` (Q,): the type."""
    with_questions = np.bincount(kind[first] + 1, minlength=kind.max(initial=-1) + 2)
    return images_of_type[first] / with_questions[kind[first] + 1]
