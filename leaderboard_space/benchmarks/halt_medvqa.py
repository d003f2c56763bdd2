"""HALT-MedVQA on the board."""

from dataset_builders.schema import SCENARIOS
from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="HALT-MedVQA",
    task="say when there is no answer",
    case="question",
    chains=(("scenario", "source_dataset"),),
    # Each scenario is a metric of its own, beside a count of irrelevant answers.
    first_facet="metric",
    # Per scenario the mean of 1 / number of options over the released questions (543, 1000, 818);
    # `average` is the mean of the three scenarios.
    chance={"fake": 21.617995, "none": 25.0, "swap": 21.662592, "average": 22.760196},
    facet_metrics=("scenario", "average", {name: (name, f"{name}_irrelevant") for name in SCENARIOS}),
    words=("hallucination", "hallucinate findings", "refusal", "abstention"),
    aspects={
        "none": "picks “None of the above” when the correct option is removed",
        "fake": "picks “I do not know” when the question makes no sense",
        "swap": "picks “I do not know” when the image is another patient's",
    },
    published="2024-01",  # arXiv:2401.05827
)
