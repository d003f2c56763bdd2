"""GMAI-MMBench on the board."""

from dataset_builders.facets import FACET_CHAINS
from leaderboard_space.benchmarks.spec import BoardSpec

SPEC = BoardSpec(
    label="GMAI-MMBench",
    task="name what an image shows",
    case="question",
    chains=FACET_CHAINS,
    first_facet="department",
    aspects={"accuracy": "names what the image shows"},
    hidden_splits=frozenset({"test"}),
    published="2024-08",  # arXiv:2408.03361
)
