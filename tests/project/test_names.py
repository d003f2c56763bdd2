"""Check that names say what they hold: the share of vague ones stays small in every package, in the
tests and in the benchmarks.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe", "tests", "benchmarks")
# Participles and pronouns that do not say what is meant; then nouns that fit everything.
VAGUE_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
        found said told given made held kept known wanted shown drawn asked named called taken used put left got
        each one other others another own ours theirs mine this that these those any some such same whole rest
        what how who where there here now then before after first last more most less least both alone apart beside
        thing things stuff tmp obj
        """,
    )
)
MAX_SHARE = 0.01
"""Largest share of vague names among all assigned names and parameters of a folder; huggingface_hub
has 0.2 %, openai 0.7 %.
"""


def assigned_names(source: str) -> list[tuple[int, str]]:
    """Return (line, name) of every assigned variable and of every parameter."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
    return names


@pytest.mark.parametrize("folder", FOLDERS)
def test_few_names_are_vague(folder):
    places, total = Counter(), 0
    for path in (ROOT / folder).rglob("*.py"):
        names = assigned_names(path.read_text(encoding="utf-8"))
        total += len(names)
        places.update(f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in names if name in VAGUE_NAMES)
    assert total > 100
    assert places.total() <= MAX_SHARE * total, "\n".join(places)


def test_the_measure_counts_assignments_and_parameters():
    source = "def f(found, n):\n    for each in n:\n        x = [one for one in each]\n    return found.said"
    vague = [name for _, name in assigned_names(source) if name in VAGUE_NAMES]
    assert sorted(vague) == ["each", "found", "one"]
