"""Any set of visual questions: prompts by question type, and the share answered correctly.

A question with several correct options is answered correctly only by exactly these options.
"""

import numpy as np
import pandas as pd

from eval_harness.benchmarks.spec import (
    DOT_LINES,
    OPEN_ENDED_METHODS,
    EvalSpec,
    MetricInfo,
    Prompt,
    bare_question_prompt,
)
from eval_harness.scores.grading import Graded, make_units

_SOURCE = "medprobe; not the prompt of a paper"


def units(graded: Graded) -> pd.DataFrame:
    """Build one unit per question.

    Chance is 1 / options. With several correct options it is 1 / (2^options - 1): a guesser takes
    any non-empty set of options with equal probability.

    Args:
        graded: Graded answers.
    """
    return make_units(
        graded, "accuracy", np.arange(len(graded.questions)), graded.right.mean(axis=1), 1.0, graded.guess
    )


SPEC = EvalSpec(
    units=units,
    read_official=None,
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo(
            "Accuracy", "Questions answered correctly; if several options are correct, exactly these must be chosen."
        )
    },
    prompts=(
        Prompt(
            "single",
            "{question}\n{options}\nAnswer with the letter of the correct option.",
            _SOURCE,
            DOT_LINES,
        ),
        Prompt(
            "multiple",
            "{question}\n{options}\nAnswer with the letters of all correct options, separated by commas.",
            _SOURCE,
            DOT_LINES,
        ),
        Prompt("yes-no", "{question}\nAnswer with yes or no.", _SOURCE, shot_answer="text"),
        bare_question_prompt("the question as it stands", ("mc", *OPEN_ENDED_METHODS)),
    ),
    default_prompts={
        "mc": "single",
        "multiple": "multiple",
        "yes_no": "yes-no",
        **dict.fromkeys(OPEN_ENDED_METHODS, "question"),
    },
    # Room for reasoning before the answer.
    max_tokens=1024,
)
