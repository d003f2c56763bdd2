"""Answers of a responder that always chooses the same position."""

import pandas as pd


def constant_answers(questions: pd.DataFrame, position: int) -> pd.DataFrame:
    """Return answers that always choose this position (or the last one, if there are fewer)."""
    choice = [[min(position, len(options) - 1)] for options in questions["options"]]
    return pd.DataFrame(
        {
            "question_id": questions["question_id"].to_numpy(),
            "sample": 0,
            "choice": pd.Series(choice, dtype=object),
            "status": "answered",
        }
    )
