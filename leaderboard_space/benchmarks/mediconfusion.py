"""MediConfusion on the board."""

from __future__ import annotations

from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="MediConfusion",
    case="pair",
    short_guess="a coin flip",
    guesses={"set_accuracy": "flipping a coin for each image", "individual_accuracy": "flipping a coin"},
    # Two options to a question, two questions to a pair.
    chance={"set_accuracy": 25.0, "individual_accuracy": 50.0, "confusion": 50.0},
    per_image=True,
    plot="scatter",
    plot_metric="confusion",
)
