"""What a constant answer gets: the metric may be high and the responder bad."""

import pandas as pd

from eval_harness.derive.answers import read_answers
from eval_harness.derive.scoring import score


def test_confusion_above_chance_is_worse_than_chance():
    questions = pd.DataFrame(
        {
            "question_id": [f"{pair}-{side}" for pair in range(40) for side in (1, 2)],
            "case_id": [str(pair) for pair in range(40) for _ in (1, 2)],
            "image_id": [str(i) for i in range(80)],
            "question": "Which side?",
            "options": [["left", "right"]] * 80,
            "answer": [[0], [1]] * 40,
            "question_type": "single",
            "categories": [["Cerebral"]] * 80,
        }
    )
    answers = pd.DataFrame(
        {"question_id": questions["question_id"], "sample": 0, "response": "A", "status": "answered"}
    )
    scores = score("mediconfusion", questions, read_answers(answers, questions, "mediconfusion")).scores
    assert scores["confusion"].value == 100
    assert scores["confusion"].verdict == "worse"
    assert scores["set_accuracy"].verdict == "worse"
    assert scores["individual_accuracy"].verdict == "no different"
