"""ProbMed's probing of VQA-RAD on the board."""

from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="ProbMed on VQA-RAD",
    task="reject what is not in the image",
    case="pair",
    chance={"accuracy": 25.0, "accuracy_without_adversarial": 50.0},
    published="2024-05",  # arXiv:2405.20421
)
