"""What one gets without looking: the published chance levels beside ours, and responders that always say the same.

A uniform guesser's exact level is in every Score (`chance`). A deterministic guesser of positions has other levels: on MediConfusion 0 set
accuracy, 50 individual accuracy, 100 confusion whatever the letter; on HALT's NONE "C" gets 37.0, and "I do not know" gets 100 on FAKE and
SWAP. A verdict against chance is against the uniform guesser; these levels say how much more a score needs to mean anything.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.schema import LETTERS
from eval_harness.records.result import Scores

PUBLISHED_CHANCE: dict[str, dict[str, tuple[float, str]]] = {
    "mediconfusion": {
        "set_accuracy": (25.0, "Table 1: two independent coin flips, as ours."),
        "individual_accuracy": (50.0, "Table 1, as ours."),
    },
    "probmed": {
        "modality": (25.0, "Table 5, as ours: two questions an image."),
        "organ": (25.0, "Table 5, as ours: two questions an image."),
        "abnormality": (50.0, "Table 5, as ours."),
        "condition": (
            35.67,
            "Table 5: a mixture over images with one question (50) and with two or more (25 and less), as ours is.",
        ),
        "position": (
            36.48,
            "Table 5. Cannot be: every image with position questions has at least two, so a guesser gets at most 25.",
        ),
        "overall": (32.13, "Table 5: made from the column above, so it is too high by as much as position is."),
    },
    "gmai-mmbench": {
        "accuracy": (25.7, "Table 2, validation: one drawing of random answers; ours is the expected value.")
    },
}
"""Chance as the papers print it, per format and metric, with why it differs from ours. No verdict hangs on it."""


def constant_answers(questions: pd.DataFrame, position: int) -> pd.DataFrame:
    """Answers of a responder that always takes this position (the last option where a question has fewer)."""
    choice = [[min(position, len(options) - 1)] for options in questions["options"]]
    return _answers(questions, choice)


def same_text_answers(questions: pd.DataFrame, text: str) -> pd.DataFrame:
    """Answers of a responder that always takes the option of this text ("I do not know"); none where there is none."""
    wanted = text.strip().lower()
    choice = [
        [index for index, option in enumerate(options) if str(option).strip().lower() == wanted][:1]
        for options in questions["options"]
    ]
    return _answers(questions, choice)


def constant_levels(family: str, questions: pd.DataFrame) -> dict[str, Scores]:
    """Scores of always answering A, of always answering B, and so on: letter -> metric -> Score."""
    from eval_harness.derive.scoring import units
    from eval_harness.derive.summary import summarise

    most = max((len(options) for options in questions["options"]), default=0)
    return {
        LETTERS[position]: summarise(units(family, questions, constant_answers(questions, position)))
        for position in range(most)
    }


def _answers(questions: pd.DataFrame, choice: list[list[int]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": questions["question_id"].to_numpy(),
            "sample": 0,
            "choice": pd.Series(choice, dtype=object),
            "status": np.where([bool(picked) for picked in choice], "answered", "irrelevant"),
        }
    )
