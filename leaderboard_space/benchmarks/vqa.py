"""Sets other than the benchmarks on the board: each is a question set of its own."""

from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="Other sets",
    task="answer the questions of any other set",
    case="image",
    words=("vqa", "own set"),
    aspects={"accuracy": "answers right"},
)
