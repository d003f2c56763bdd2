"""MediConfusion: prompts, reading and scores (Sepehri et al., ICLR 2025).

Templates of the paper's Table 5 and the authors' prompt file, verbatim; set accuracy, individual
accuracy, confusion and invalid (ICLR text, section 3.3; Tables 1 and 2). See also: aggregates over
several runs (`store/aggregate.py`), the free-form judge (`reader/judge.py`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.spec import (
    OPEN_ENDED_METHODS,
    EvalSpec,
    MetricInfo,
    Prompt,
    bare_question_prompt,
    lettered_layout,
)
from eval_harness.reader import Reading, official_reading
from eval_harness.scores.grading import Floats, Graded, make_units

_QUOTED_LINES = lettered_layout('": ', "\n", opening='("', closing=")")

_BASED = "Based on the image, choose the correct option for the following question.\n"
_ASKED = "Question: {question}\n{options}\n"
_MC = _BASED + _ASKED
_DIRECTLY = "Answer with the option's letter directly.\nAnswer: "
_FROM_CHOICES = "Answer with the option's letter from the given choices directly."
_ONE_LETTER = _FROM_CHOICES + " Your answer should be just one letter.\n"
_GIVEN = (
    "You are given a radiology image, based on which you will need to carefully answer a medical question related to the image. "
    "You will be given two answer options: A and B from which you have to choose the right answer. The correct answer can always be "
    "determined just by looking at the radiology image itself. Take a close look at the image, think carefully, and answer the "
    "following question.\n"
)
_CRITICAL = (
    "You are given a radiology image, and your critical task is to take a close look and choose the correct option for the following "
    "question. It is extremely important to answer the following question correctly.\n"
)
_EXPERT = "You are an expert radiologist AI with deep knowledge in radiology image analysis. "
_VARIATIONS = {
    "mc-1": "Answer the following question about the image.\n" + _ASKED + _DIRECTLY,
    "mc-2": "Answer the following question about the image with the correct option's letter directly.\n"
    + _ASKED
    + "Answer: ",
    "mc-3": "Carefully and skillfully review the image and answer the following question.\n" + _ASKED + _DIRECTLY,
    "mc-4": _EXPERT + _BASED + _ASKED + _DIRECTLY,
    "mc-5": _MC + "Simply respond with 'A' or 'B' based on your answer.\nAnswer: ",
    "mc-6": "Based on the image, please choose the correct option for the following question.\n"
    + _ASKED
    + "Please answer with the option's letter from the given choices directly.\nAnswer: ",
    "mc-8": _GIVEN + _ASKED + _ONE_LETTER + "Answer: ",
    "mc-9": _ASKED + "Correct answer option: ",
    "mc-10": _CRITICAL + _ASKED + _ONE_LETTER + "Answer: ",
}
_FLAMINGO = (
    "You are a helpful medical assistant. You are being provided with images, a {} about each image and an answer. "
    "Follow the examples and answer the last question."
)
_FILE = "MediConfusion authors' prompt file "
_TABLE_5 = (
    "MediConfusion Table 5 (arXiv: Table 4); the paper prints no line breaks, they follow prompt 0 of the authors' file"
)

_MC_ONLY, _GD_ONLY = ("mc",), ("gd",)
_PROMPTS = (
    Prompt(
        "mc-0",
        _MC + _ONE_LETTER + "Answer: ",
        "MediConfusion Table 5, prompt 0; line breaks as the authors' prompt file (mc: gpt)",
        methods=_MC_ONLY,
    ),
    Prompt(
        "mc-quoted",
        _MC + _ONE_LETTER + '#answer: ("',
        _FILE + "(mc: default)",
        _QUOTED_LINES,
        _MC_ONLY,
    ),
    *(Prompt(name, template, _TABLE_5, methods=_MC_ONLY) for name, template in _VARIATIONS.items()),
    Prompt(
        "mc-7",
        "Based on the image, choose the correct option for the following question. Question: {question} {options} "
        + _ONE_LETTER[:-1]
        + " Answer: ",
        _TABLE_5,
        lettered_layout(": ", " ", opening="Option "),
        _MC_ONLY,
    ),
    Prompt(
        "mc-medvint",
        "Question: {question} The choices are: {options} The Answer is: ",
        _FILE + "(mc: medvint)",
        lettered_layout(": ", " "),
        _MC_ONLY,
    ),
    Prompt(
        "mc-blip2",
        "Question: Based on the image, choose the correct option for the following question. {question}\n{options}\n"
        + _FROM_CHOICES
        + " Answer:",
        _FILE + "(mc and greedy: blip2)",
    ),
    Prompt(
        "mc-flamingo",
        "Question: {question}\n{options}\nAnswer:",
        _FILE + "(mc and greedy: med_flamingo), appendix B.1",
        intro=_FLAMINGO.format("two choice question"),
        shot_answer="both",
    ),
    Prompt(
        "gd-default",
        _MC + _FROM_CHOICES + "\nAnswer: ",
        _FILE + "(greedy: default)",
        methods=_GD_ONLY,
    ),
    Prompt(
        "gd-quoted",
        _MC + _ONE_LETTER + '#answer: ("',
        _FILE + "(greedy: molmo)",
        _QUOTED_LINES,
        _GD_ONLY,
    ),
    Prompt(
        "ps-plain",
        "Question: {question} Answer:",
        _FILE + "(prefix: default; gpt4: blip2; both: med_flamingo)",
        methods=OPEN_ENDED_METHODS,
        intro=_FLAMINGO.format("question"),
        shot_answer="text",
    ),
    Prompt(
        "ff-default",
        "Based on the image, answer following question.\n{question}",
        _FILE + "(gpt4: default)",
        methods=("ff",),
        shot_answer="text",
    ),
    bare_question_prompt("MediConfusion authors' prefix scoring of chat models: the question as it stands"),
)

# The nine forms of `clean_up_manual`, verbatim.
_FORMS = ("{0}", "{0}:", ".{0}", ".{0}:", "{0}.", '{0}")', '("{0}":', '("{0}")', '("{0}").')


def read_official(response: str, options: Sequence[str], question_type: str) -> Reading:
    """Read a response as the authors' `clean_up_manual`: an option letter in one of nine forms.

    The response is split at spaces and line breaks; if it has two different letters, nothing is
    read. Defects: "A" is option A even as an article, so "B: A mass" is invalid; "(B)" is not read.

    Args:
        response: The model's response.
        options: Option texts in the order shown.
        question_type: Unused.
    """
    # As in the authors' code, punctuation stays attached to the words.
    words = set(response.replace("\n", " ").split(" "))
    positions = tuple(
        index for index in range(len(options)) if any(form.format(LETTERS[index]) in words for form in _FORMS)
    )
    return official_reading(positions if len(positions) == 1 else (), "official: letter between blanks")


def units(graded: Graded) -> pd.DataFrame:
    """Build the units of all metrics.

    `set_accuracy` and `confusion` have one unit per pair, `individual_accuracy` and `invalid` one
    per question.

    `category` is a list: a question carries the labels of its image, a pair those of both images,
    so `metrics.explode_facet` counts image labels as Table 2 does (a pair of two Cerebral images
    counts twice).

    `confusion` is taken over the pairs with two valid answers, as the paper says; without any such
    pair it is undefined (the authors' code prints 0). Its chance is the probability that two
    independent guesses agree.

    Args:
        graded: Graded answers.

    Returns:
        Units of all metrics (`grading.make_units`).
    """
    questions = np.arange(len(graded.questions))
    pairs = graded.group_by_case(questions)
    both_right = pairs.reduce(np.logical_and, graded.right)
    both_valid = pairs.reduce(np.logical_and, graded.answered)
    # With only one question of a pair, its images cannot be confused.
    countable = both_valid & (pairs.sizes > 1)[:, None]
    # Equal minimum and maximum: the same position for all images of the pair.
    lowest = pairs.reduce(np.minimum, graded.first_choice)
    is_same_option = countable & (lowest == pairs.reduce(np.maximum, graded.first_choice))
    hit_by_guess = pairs.reduce(np.multiply, graded.guess)
    labels = [
        list(cell) if cell is not None else []
        for cell in graded.questions.get("categories", pd.Series([[]] * len(questions)))
    ]
    pair_labels = [
        [label for row in pairs.order[start : start + size].tolist() for label in labels[row]]
        for start, size in zip(pairs.starts.tolist(), pairs.sizes.tolist(), strict=True)
    ]
    # Independent uniform guesses all name the same position with this probability.
    agreement_chance = pairs.reduce(np.minimum, graded.k) / pairs.reduce(np.multiply, graded.k.astype(float))
    ends, pair_ids = graded.ends_over(pairs), graded.columns["case_id"][pairs.first_rows]

    def pair_frame(metric: str, numerator: Floats, denominator: Floats | float, chance: Floats) -> pd.DataFrame:
        return make_units(
            graded, metric, pairs.first_rows, numerator, denominator, chance, pair_ids,
            facets={"category": pair_labels}, ends=ends,
        )  # fmt: skip

    def question_units(metric: str, numerator: Floats, chance: Floats | float) -> pd.DataFrame:
        return make_units(graded, metric, questions, numerator, 1.0, chance, facets={"category": labels})

    valid_share = countable.mean(axis=1)
    return pd.concat(
        [
            pair_frame("set_accuracy", both_right.mean(axis=1), 1.0, hit_by_guess),
            question_units("individual_accuracy", graded.right.mean(axis=1), graded.guess),
            pair_frame(
                "confusion",
                is_same_option.mean(axis=1),
                valid_share,
                agreement_chance * valid_share,
            ),
            question_units("invalid", (~graded.answered).mean(axis=1), np.nan),
        ],
        ignore_index=True,
    )


SPEC = EvalSpec(
    units=units,
    read_official=read_official,
    headline="set_accuracy",
    metrics={
        "set_accuracy": MetricInfo("Set accuracy", "Pairs with both images answered correctly."),
        "individual_accuracy": MetricInfo("Individual accuracy", "Questions answered correctly."),
        "confusion": MetricInfo(
            "Confusion",
            "Pairs with the same option chosen for both images, among pairs with two valid answers.",
            False,
        ),
        "invalid": MetricInfo("Invalid", "Questions without a valid answer.", False, of_ends=True),
    },
    prompts=_PROMPTS,
    default_prompts={
        "mc": "mc-0",
        "gd": "gd-default",
        "ps": "question",
        "ps_official": "question",
        "ff": "ff-default",
    },
    # The authors' prompt file, `init_prompts: default` (used by `configs/Models/gpt/vanilla.json`).
    system="You are a helpful assitant expert in medical domain.",
    judged_free_form=True,
)
