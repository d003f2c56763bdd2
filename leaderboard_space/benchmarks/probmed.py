"""ProbMed on the board."""

from leaderboard_space.benchmarks.spec import BoardSpec

_LABELS = {"modality": ("modality", "image_type"), "organ": ("organ", "image_type")}

SPEC = BoardSpec(
    label="ProbMed",
    task="hold an answer when probed",
    case="image",
    chains=(("image_type",), ("organ", "modality")),
    # Table 19: two questions on modality and organ, one on abnormality. Condition, position and
    # overall depend on the findings per image, which the paper does not print.
    chance={
        "modality": 25.0,
        "modality_without_adversarial": 50.0,
        "organ": 25.0,
        "organ_without_adversarial": 50.0,
        "abnormality": 50.0,
    },
    plot="slopes",
    by_image_type=True,
    aspects={
        "overall": "answers everything right",
        "condition": "says what is wrong",
        "position": "says where",
        "abnormality": "sees that something is wrong",
        "organ": "names the organ",
        "modality": "names the modality",
    },
    given_away={name + ending: facets for name, facets in _LABELS.items() for ending in ("_without_adversarial", "")},
    published="2024-05",  # arXiv:2405.20421
)
