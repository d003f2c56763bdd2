"""ProbMed on the board."""

from __future__ import annotations

from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="ProbMed",
    task="hold an answer when probed",
    case="image",
    chains=(("image_type",), ("organ", "modality")),
    # Table 19: two questions on modality and organ, one on abnormality. Condition, position and overall depend on the findings per
    # image, which the paper does not print.
    chance={
        "modality": 25.0,
        "modality_without_adversarial": 50.0,
        "organ": 25.0,
        "organ_without_adversarial": 50.0,
        "abnormality": 50.0,
    },
    plot="slopes",
    plot_metric="modality_without_adversarial",
    by_image_type=True,
    published="2024-05",  # arXiv:2405.20421
)
