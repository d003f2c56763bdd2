"""MediConfusion on the board."""

from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="MediConfusion",
    task="tell two confusing images apart",
    case="pair",
    short_guess="a coin flip",
    guesses={"set_accuracy": "flipping a coin for each image", "individual_accuracy": "flipping a coin"},
    # A question has two options, a pair two questions.
    chance={"set_accuracy": 25.0, "individual_accuracy": 50.0, "confusion": 50.0},
    # Counted in the authors' dataset.json. Shared images link the 176 pairs into 60 components; the
    # largest have 25, 20 and 18 pairs. Each value is the mean size of a component, averaged over
    # components and over pairs. The images of the easy and the unfiltered set are not published;
    # these sets are assumed to share images to the same extent.
    cases_sharing={
        "": (176 / 60, 9.70),
        "Cerebral": (45 / 10, 11.49),
        "Vascular": (38 / 12, 11.68),
        "Head and Neck": (40 / 11, 9.90),
        "Spinal": (31 / 11, 4.55),
        "Musculoskeletal": (23 / 12, 3.87),
        "Cardiac": (26 / 2, 24.08),
        "Gastrointestinal": (23 / 11, 2.83),
        "Pulmonary": (11 / 10, 1.18),
        "Nuclear Medicine": (7 / 4, 2.71),
    },
    per_image=True,
    aspects={"set_accuracy": "tells both images of a pair apart", "individual_accuracy": "answers one image"},
    words=("look alike", "pair", "confusion"),
    plot="scatter",
    published="2024-09",  # arXiv:2409.15477
)
