"""ProbMed: how it is asked, read and scored (Yan et al., 2024).

A hit = every question of an aspect on an image right (section 4, Tables 4, 5 and the appendix). The authors' scorer averages image types
with weights that count, for condition and position, also the images that have no such question. `condition`, `position`, `overall` (and
their `_without_adversarial`) carry these weights, so that they are the paper's numbers; we recommend `<name>_reweighted`, which divides by
the images that have such questions. Three more defects of that scorer do not touch complete answers in file order and are not reproduced.

Table 6 says where the diagnosis goes wrong: each step on the images whose earlier steps are right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.prompt import OPEN_ENDED_METHODS, bare_question_prompt
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo
from eval_harness.reader import Reading, official_reading
from eval_harness.records.result import ARMS, Breakdown, Score
from eval_harness.scores.grading import Bools, Floats, Graded, Ints, ResponseEnds, make_units
from eval_harness.scores.intervals import INTERVAL_METHOD, clustered_interval
from eval_harness.scores.nonresponse import apply_nonresponse, decisive_nonresponse

PROBMED_PROMPTS = (bare_question_prompt("ProbMed: the question as it stands", ("mc", "gd", *OPEN_ENDED_METHODS)),)

PROBMED_DEFAULT_PROMPTS = {"mc": "question", **dict.fromkeys(OPEN_ENDED_METHODS, "question")}
PROBMED_SYSTEM_MESSAGE = (
    "You are a student in medical school. You are preparing for your final exam. Answer the following question in your "
    "practice exam as directed to earn higher scores. You answer will only be for academic purpose."
)
"""`eval/inference/GPT-4V/gpt4v.py` of eric-ai-lab/ProbMed at commit 8e29f9a."""
WEIGHTED = ("condition", "position")
"""Aspects whose weights count images without such questions."""


def _metrics() -> dict[str, MetricInfo]:
    metrics: dict[str, MetricInfo] = {}
    for aspect in ASPECTS:
        label = aspect.capitalize()
        alike = aspect in ("modality", "organ")  # of the image that the arm `swapped` shows, as of the right one
        arms, why = (ARMS[:2], "the image shown instead has the same modality and organ") if alike else (ARMS, "")
        weighted = " Image types are weighted as in the paper's scorer." if aspect in WEIGHTED else ""
        metrics[aspect] = MetricInfo(
            label, f"Images with every question on {aspect} answered correctly.{weighted}", arms=arms, no_arm=why
        )
        if aspect != "abnormality":
            metrics[f"{aspect}_without_adversarial"] = MetricInfo(
                f"{label}, no adversarial",
                f"The same without the adversarial questions.{weighted}",
                arms=arms,
                no_arm=why,
            )
    metrics["overall"] = MetricInfo("Overall accuracy", "All five aspects together, weighted as in the paper's scorer.")
    metrics["overall_without_adversarial"] = MetricInfo(
        "Overall accuracy, no adversarial",
        "Four aspects (abnormality has no adversarial questions) without the adversarial questions. Never to be set against `overall`.",
    )
    for name in (*WEIGHTED, "overall"):
        for base in (name, f"{name}_without_adversarial"):
            metrics[f"{base}_reweighted"] = MetricInfo(
                f"{metrics[base].label} (reweighted)", f"As `{base}`, divided by the images that have such questions."
            )
    return metrics


_ERRORS = {
    "accuracy_given_earlier": MetricInfo(
        "Accuracy given earlier steps",
        "Of the images with every earlier step of the diagnosis right, those with this one right.",
    ),
    "denies_truth": MetricInfo("Denies the truth", "Errors that answer no where the finding is there.", False),
    "accepts_hallucination": MetricInfo(
        "Accepts a hallucination", "Errors that answer yes to an invented finding.", False
    ),
    "wrong_answer": MetricInfo("Wrong answer", "Errors on abnormality that are a wrong answer.", False),
}
STEPS: dict[str, tuple[str, ...]] = {
    "abnormality": ("modality", "organ"),
    "condition": ("modality", "organ", "abnormality"),
    "position": ("modality", "organ", "abnormality", "condition"),
}
"""Each step with the steps that must be right before it."""


def read_official(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The authors' `get_score_binary`, as a reading: 'Yes' anywhere, or the whole response yes; likewise 'No'.

    It asks only whether the key is found: a response with both is right for either key, so both positions are returned (see
    `probmed_hit`). Defects: "Normal" and "None" hold 'No'; "yes, there is" is nothing.
    """
    lowered = [option.strip().lower() for option in options]
    found = tuple(index for index, word in enumerate(lowered) if word in ("yes", "no") and probmed_hit(response, word))
    return official_reading(found, "official: Yes or No as a substring")


def probmed_hit(response: str, key: str) -> bool:
    """True if the authors' scorer counts a response as right, for the key `yes` or `no`."""
    text = response.strip()
    return key.capitalize() in text or text.lower() in (key, key + ".")


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
            plain = np.ones(len(first))
            weighted = _official_weight(kind, first, images_of_type) if aspect in WEIGHTED else plain
            for suffix, weight in (("", weighted), ("_reweighted", plain)):
                frame = _rows(graded, f"{metric}{suffix}", first, hit, guess, weight, ends)
                if aspect in WEIGHTED or not suffix:
                    frames.append(frame)
                whole = f"{'overall' if metric == aspect else 'overall_without_adversarial'}{suffix}"
                everything.setdefault(whole, []).append(_renamed(frame, whole, aspect))
    return pd.concat([*frames, *(frame for parts in everything.values() for frame in parts)], ignore_index=True)


def _rows(
    graded: Graded, metric: str, first: Ints, hit: Floats, guess: Floats, weight: Floats, ends: ResponseEnds
) -> pd.DataFrame:
    images = graded.columns["case_id"][first]
    return make_units(graded, metric, first, hit * weight, weight, guess * weight, images, ends=ends)


def _renamed(frame: pd.DataFrame, metric: str, aspect: str) -> pd.DataFrame:
    names = pd.Series([f"{unit}/{aspect}" for unit in frame["unit"].to_numpy()], index=frame.index, dtype=object)
    return frame.assign(metric=pd.Series(metric, index=frame.index, dtype=object), unit=names)


def _without_adversarial(graded: Graded, rows: Ints, adversarial: np.ndarray) -> Ints:
    """The questions that are not adversarial; all of them for an image that has only adversarial ones."""
    plain = rows[~adversarial[rows]]
    unpaired = rows[~np.isin(graded.case[rows], graded.case[plain])]
    return np.sort(np.concatenate([plain, unpaired]))


def _hits(graded: Graded, rows: Ints) -> tuple[Ints, Floats, Floats, ResponseEnds]:
    """Per image with such questions: one of its rows, the share of samples in which all are right, the chance of that, how the responses
    ended."""
    order = rows[np.argsort(graded.case[rows], kind="stable")]
    if not len(order):
        return order, np.zeros(0), np.zeros(0), graded.ends_over(order, order)
    starts = np.flatnonzero(np.r_[True, np.diff(graded.case[order]) != 0])
    hit = np.logical_and.reduceat(graded.right[order], starts, axis=0).mean(axis=1)
    guess = np.multiply.reduceat(graded.guess[order], starts)
    return order[starts], hit, guess, graded.ends_over(order, starts)


def _official_weight(kind: Ints, first: Ints, images_of_type: Floats) -> Floats:
    """Images of the type / images of the type with such questions: the authors' weight, spread over the latter. `kind` (Q,): the type."""
    with_questions = np.bincount(kind[first] + 1, minlength=kind.max(initial=-1) + 2)
    return images_of_type[first] / with_questions[kind[first] + 1]


def more_breakdowns(graded: Graded, official: bool) -> Breakdown:
    """The errors of Table 6 per aspect; there `refused` is a share of errors."""
    return {"aspect": conditional_errors(graded, official)}


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
        silent = decisive_nonresponse(graded.ends[rows].sum(axis=0))
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
        result[step] = {name: apply_nonresponse(each, silent, official) for name, each in scores.items()}
    return result


def _all_right(graded: Graded, rows: Ints, images: int) -> tuple[Bools, Bools]:
    """Masks of the images with these questions (I,), and of those with all of them correct (I, S)."""
    asked = np.zeros(images, bool)
    asked[graded.case[rows]] = True
    return asked, ~_any(graded, rows, ~graded.right[rows], images)


def _any(graded: Graded, rows: Ints, holds: Bools, images: int) -> Bools:
    """True where any of the questions `rows` of an image holds: (I, S)."""
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
        interval_method=INTERVAL_METHOD,
    )


SPEC = EvalSpec(
    units=units,
    more_breakdowns=more_breakdowns,
    read_official=read_official,
    headline="overall",
    metrics={**_metrics(), **_ERRORS},
    prompts=PROBMED_PROMPTS,
    default_prompts=PROBMED_DEFAULT_PROMPTS,
    system=PROBMED_SYSTEM_MESSAGE,
)
