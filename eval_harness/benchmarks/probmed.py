"""ProbMed: prompts, reading and scores (Yan et al., 2024).

A hit is an image with every question of an aspect answered correctly (section 4, Tables 4, 5 and
the appendix). The authors' scorer averages over image types. Its weights for condition and position
also count the images that have no such question. `condition`, `position`, `overall` (and their
`_without_adversarial`) use these weights, so they match the paper's numbers; we recommend
`<name>_reweighted`, which divides by the number of images that have such questions. Three more
defects of that scorer do not affect complete answers in file order and are not reproduced.

Table 6 locates diagnostic errors: each step is scored on the images whose earlier steps are
correct.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.spec import OPEN_ENDED_METHODS, EvalSpec, MetricInfo, bare_question_prompt
from eval_harness.reader import Reading, official_reading
from eval_harness.records.result import ARMS, Breakdown, Score
from eval_harness.scores.grading import (
    Bools,
    Floats,
    Graded,
    Ints,
    ResponseEnds,
    apply_nonresponse,
    check_columns,
    decisive_nonresponse,
    make_units,
)
from eval_harness.scores.intervals import score_ratio

PROBMED_PROMPTS = (bare_question_prompt("ProbMed: the question as it stands", ("mc", "gd", *OPEN_ENDED_METHODS)),)

PROBMED_DEFAULT_PROMPTS = {"mc": "question", **dict.fromkeys(OPEN_ENDED_METHODS, "question")}
PROBMED_SYSTEM_MESSAGE = (
    "You are a student in medical school. You are preparing for your final exam. Answer the following question in your "
    "practice exam as directed to earn higher scores. You answer will only be for academic purpose."
)
"""From `eval/inference/GPT-4V/gpt4v.py` of eric-ai-lab/ProbMed at commit 8e29f9a."""
WEIGHTED = ("condition", "position")
"""Aspects whose official weights also count images without such questions."""


def _metrics() -> dict[str, MetricInfo]:
    metrics: dict[str, MetricInfo] = {}
    for aspect in ASPECTS:
        label = aspect.capitalize()
        # A swapped image has the same modality and organ, so these answers stay correct.
        is_kept_by_swap = aspect in ("modality", "organ")
        arms, no_arm_reason = (
            (ARMS[:2], "the image shown instead has the same modality and organ") if is_kept_by_swap else (ARMS, "")
        )
        weighted = " Image types are weighted as in the paper's scorer." if aspect in WEIGHTED else ""
        metrics[aspect] = MetricInfo(
            label,
            f"Images with every question on {aspect} answered correctly.{weighted}",
            arms=arms,
            no_arm=no_arm_reason,
        )
        if aspect != "abnormality":
            metrics[f"{aspect}_without_adversarial"] = MetricInfo(
                f"{label}, no adversarial",
                f"As `{aspect}`, without the adversarial questions.{weighted}",
                arms=arms,
                no_arm=no_arm_reason,
            )
    metrics["overall"] = MetricInfo("Overall accuracy", "All five aspects together, weighted as in the paper's scorer.")
    metrics["overall_without_adversarial"] = MetricInfo(
        "Overall accuracy, no adversarial",
        "Four aspects (abnormality has no adversarial questions) without the adversarial questions. Not comparable with `overall`.",
    )
    for name in (*WEIGHTED, "overall"):
        for base in (name, f"{name}_without_adversarial"):
            metrics[f"{base}_reweighted"] = MetricInfo(
                f"{metrics[base].label} (reweighted)",
                f"As `{base}`, divided by the images that have such questions.",
            )
    return metrics


_ERRORS = {
    "accuracy_given_earlier": MetricInfo(
        "Accuracy given earlier steps",
        "Images with this step correct, among those with every earlier step of the diagnosis correct.",
    ),
    "denies_truth": MetricInfo("Denies the truth", "Errors that answer no although the finding is present.", False),
    "accepts_hallucination": MetricInfo(
        "Accepts a hallucination", "Errors that answer yes to an invented finding.", False
    ),
    "wrong_answer": MetricInfo("Wrong answer", "Errors on abnormality with a wrong answer.", False),
}
STEPS: dict[str, tuple[str, ...]] = {
    "abnormality": ("modality", "organ"),
    "condition": ("modality", "organ", "abnormality"),
    "position": ("modality", "organ", "abnormality", "condition"),
}
"""Diagnostic step -> the steps that must be correct before it."""


def read_official(response: str, options: Sequence[str], question_type: str) -> Reading:
    """Read a response as the authors' `get_score_binary` does.

    It finds yes if the response contains "Yes" or is just "yes"; likewise no. The authors only test
    whether the key occurs, so a response with both words is correct for either key; here both
    positions are returned (see `probmed_hit`). Known defects of that parser: "Normal" and "None"
    contain "No"; "yes, there is" is not read.

    Args:
        response: The model's response.
        options: Option texts in the order shown.
        question_type: Unused.
    """
    lowered = [option.strip().lower() for option in options]
    positions = tuple(
        index for index, word in enumerate(lowered) if word in ("yes", "no") and probmed_hit(response, word)
    )
    return official_reading(positions, "official: Yes or No as a substring")


def probmed_hit(response: str, key: str) -> bool:
    """Return True if the authors' scorer counts a response as correct for the key `yes` or `no`."""
    text = response.strip()
    return key.capitalize() in text or text.lower() in (key, key + ".")


def units(graded: Graded) -> pd.DataFrame:
    """Build one unit per (aspect, image); `overall` repeats the units of all aspects.

    `without_adversarial` uses only an image's questions about what is really there. A normal image
    has a single condition question, which is adversarial; it is kept, as in the authors' scorer.

    Chance is (1/2)^questions, averaged over images. For condition this explains the 35.67 that the
    paper prints. It cannot explain the paper's 36.48 for position, since every image with position
    questions has at least two of them (chance at most 25).

    Args:
        graded: Graded answers; questions with the columns `aspect`, `adversarial`, `image_type`.

    Returns:
        Units of all metrics (`grading.make_units`).

    Raises:
        BadInput: If a column is missing.
    """
    check_columns(graded.questions, ["aspect", "adversarial", "image_type"], purpose=", which the format probmed needs")
    type_codes = pd.factorize(graded.questions["image_type"])[0]
    # Image types are counted over images, not questions.
    one_per_image = np.unique(graded.case, return_index=True)[1]
    images_of_type = np.bincount(type_codes[one_per_image] + 1, minlength=type_codes.max(initial=-1) + 2)[
        type_codes + 1
    ].astype(float)
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    frames: list[pd.DataFrame] = []
    overall_frames: dict[str, list[pd.DataFrame]] = {
        "overall": [],
        "overall_without_adversarial": [],
    }
    for aspect in ASPECTS:
        rows = np.flatnonzero((graded.questions["aspect"] == aspect).to_numpy())
        metric_rows = [(aspect, rows)]
        if aspect != "abnormality":
            metric_rows.append((f"{aspect}_without_adversarial", _without_adversarial(graded, rows, adversarial)))
        for metric, question_rows in metric_rows:
            first_rows, hit, guess, ends = _hits(graded, question_rows)
            unit_weight = np.ones(len(first_rows))
            weighted = _official_weight(type_codes, first_rows, images_of_type) if aspect in WEIGHTED else unit_weight
            for suffix, weight in (("", weighted), ("_reweighted", unit_weight)):
                frame = _rows(graded, f"{metric}{suffix}", first_rows, hit, guess, weight, ends)
                if aspect in WEIGHTED or not suffix:
                    frames.append(frame)
                overall_metric = f"{'overall' if metric == aspect else 'overall_without_adversarial'}{suffix}"
                overall_frames.setdefault(overall_metric, []).append(_renamed(frame, overall_metric, aspect))
    return pd.concat(
        [*frames, *(frame for parts in overall_frames.values() for frame in parts)],
        ignore_index=True,
    )


def _rows(
    graded: Graded,
    metric: str,
    first_rows: Ints,
    hit: Floats,
    guess: Floats,
    weight: Floats,
    ends: ResponseEnds,
) -> pd.DataFrame:
    """Build the weighted units of one metric."""
    images = graded.columns["case_id"][first_rows]
    return make_units(graded, metric, first_rows, hit * weight, weight, guess * weight, images, ends=ends)


def _renamed(frame: pd.DataFrame, metric: str, aspect: str) -> pd.DataFrame:
    """Return units under another metric, with the aspect added to their names."""
    names = pd.Series([f"{unit}/{aspect}" for unit in frame["unit"].to_numpy()], index=frame.index, dtype=object)
    return frame.assign(metric=pd.Series(metric, index=frame.index, dtype=object), unit=names)


def _without_adversarial(graded: Graded, rows: Ints, adversarial: np.ndarray) -> Ints:
    """Return the rows of non-adversarial questions.

    For an image that has only adversarial ones, all its rows are kept.
    """
    non_adversarial = rows[~adversarial[rows]]
    adversarial_only = rows[~np.isin(graded.case[rows], graded.case[non_adversarial])]
    return np.sort(np.concatenate([non_adversarial, adversarial_only]))


def _hits(graded: Graded, rows: Ints) -> tuple[Ints, Floats, Floats, ResponseEnds]:
    """Score the images that have questions in `rows`.

    Returns:
        For each image: its first row; the share of samples in which all its questions are correct;
        the probability of that for a guesser; and how the responses ended.
    """
    images = graded.group_by_case(rows)
    hit = images.reduce(np.logical_and, graded.right).mean(axis=1)
    return images.first_rows, hit, images.reduce(np.multiply, graded.guess), graded.ends_over(images)


def _official_weight(type_codes: Ints, first_rows: Ints, images_of_type: Floats) -> Floats:
    """Return the authors' weight of each image.

    It is the number of images of its type, divided by the number of those that have such questions.
    """
    # Code -1 (no image type) becomes bin 0.
    # Count an image once, although it may have several questions.
    with_questions = np.bincount(type_codes[first_rows] + 1, minlength=type_codes.max(initial=-1) + 2)
    return images_of_type[first_rows] / with_questions[type_codes[first_rows] + 1]


def more_breakdowns(graded: Graded, official: bool = False) -> Breakdown:
    """Compute the errors of Table 6 per aspect: `accuracy_given_earlier`, shares of kinds of error.

    Errors are counted on the images that fail the step. For abnormality the kinds are
    `wrong_answer` and `refused` (nothing was read). For condition and position they are
    `denies_truth` (no to a question about what is there), `accepts_hallucination` (yes to one about
    what is not) and `refused`. An image may show several kinds; the shares are of all errors shown,
    as in the authors' code.

    That code leaves wrong conditions of images without position questions out of the shares, for no
    stated reason; we count them. Like that code, we leave out images that lack a question of an
    earlier step.

    Args:
        graded: Graded answers.
        official: Whether the answers were read by the paper's own reader. Otherwise a step has no
            scores if most responses to its questions contain no answer.

    Returns:
        The breakdown by aspect, for the aspects that are steps of the diagnosis.
    """
    aspect = graded.questions["aspect"].to_numpy(dtype=object)
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    n_images = int(graded.case.max(initial=-1)) + 1
    right_of = {name: _all_right(graded, np.flatnonzero(aspect == name), n_images) for name in set(aspect)}
    # Images inherit the cluster of their questions.
    cluster = np.zeros(n_images, np.int64)
    cluster[graded.case] = graded.cluster
    result: dict[str, dict[str, Score]] = {}
    for step, earlier in STEPS.items():
        if step not in right_of or not all(name in right_of for name in earlier):
            continue
        # Only images whose earlier steps are all correct reach this step.
        has_questions, is_right = right_of[step]
        reached = has_questions[:, None] & np.logical_and.reduce(
            [right_of[name][0][:, None] & right_of[name][1] for name in earlier]
        )
        rows = np.flatnonzero(aspect == step)
        nonresponse = decisive_nonresponse(graded.ends[rows].sum(axis=0))
        scores = {"accuracy_given_earlier": _share((reached & is_right).mean(axis=1), reached.mean(axis=1), cluster)}
        failed = reached & ~is_right
        wrong = graded.answered[rows] & ~graded.right[rows]
        if step == "abnormality":
            kinds = {"wrong_answer": wrong}
        else:
            kinds = {
                "denies_truth": wrong & ~adversarial[rows, None],
                "accepts_hallucination": wrong & adversarial[rows, None],
            }
        kinds["refused"] = ~graded.answered[rows]
        error_masks = {name: _any(graded, rows, kind, n_images) & failed for name, kind in kinds.items()}
        # An image may show several kinds of error, so divide by all errors shown.
        errors_shown = np.sum([kind.mean(axis=1) for kind in error_masks.values()], axis=0)
        scores |= {name: _share(kind.mean(axis=1), errors_shown, cluster) for name, kind in error_masks.items()}
        result[step] = {name: apply_nonresponse(score, nonresponse, official) for name, score in scores.items()}
    return {"aspect": result}


def _all_right(graded: Graded, rows: Ints, n_images: int) -> tuple[Bools, Bools]:
    """Return two masks: images with these questions (I,), and with all of them correct (I, S)."""
    has_questions = np.zeros(n_images, bool)
    has_questions[graded.case[rows]] = True
    return has_questions, ~_any(graded, rows, ~graded.right[rows], n_images)


def _any(graded: Graded, rows: Ints, holds: Bools, n_images: int) -> Bools:
    """Return a mask (I, S) of the images for which `holds` is true for any of these questions."""
    any_holds = np.zeros((n_images, graded.samples), bool)
    np.logical_or.at(any_holds, graded.case[rows], holds)
    return any_holds


def _share(numerator: Floats, denominator: Floats, cluster: Ints) -> Score:
    n = int((denominator > 0).sum())
    return score_ratio(numerator, denominator, cluster, n, n)


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
