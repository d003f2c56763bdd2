"""A benchmark's package gives what it must."""

import sys
import types

import pytest

from dataset_builders import benchmarks
from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.benchmarks.spec import DatasetSpec, Facts

FACTS = Facts("A title", "", "", "", "", "")


@pytest.fixture
def fifth(monkeypatch):
    """A fifth benchmark whose package is filled by the test."""
    package = types.ModuleType("dataset_builders.benchmarks.vqa_fifth")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setattr(benchmarks, "BENCHMARKS", (*BENCHMARKS, "vqa-fifth"))
    return package


def test_what_a_package_must_give_is_one_clear_error(fifth):
    with pytest.raises(TypeError, match=r"vqa_fifth: must define SPEC"):
        spec("vqa-fifth")
    fifth.SPEC = DatasetSpec(facts=FACTS)
    assert spec("vqa-fifth").default_split == "test"
    with pytest.raises(KeyError, match="there are mediconfusion"):
        spec("sixth")


WRITES = {
    "curation/report/quality.py": {"mediconfusion"},
    "curation/export.py": {"mediconfusion"},
    "curation/commands/custom_sets.py": {"probmed", "halt-medvqa"},
    "curation/gmai/__init__.py": {"gmai-mmbench"},
}
"""The makers of custom sets, and the report on one: each knows the format of one benchmark."""


def test_nothing_outside_its_packages_names_a_benchmark():
    import ast
    from pathlib import Path

    root = Path(__file__).parents[2]
    modules = []
    for layer in ("dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe"):
        modules += [path for path in (root / layer).rglob("*.py") if "benchmarks" not in path.relative_to(root).parts]
    modules.remove(root / "dataset_builders" / "benchmark_names.py")
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in BENCHMARKS}
        name = path.relative_to(root).as_posix()
        assert named == WRITES.get(name, set()), f"{name} names {named}: say it in the benchmark's spec"
