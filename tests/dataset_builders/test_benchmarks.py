"""Check that a benchmark is named only in its own packages."""

import ast
from pathlib import Path

from dataset_builders.benchmarks import BENCHMARKS

ALLOWED_NAMES = {
    "curation/report/quality.py": {"mediconfusion"},
    "curation/mediconfusion_export.py": {"mediconfusion"},
    "curation/commands/sets.py": {"probmed", "halt-medvqa"},
    "curation/gmai/benchmark_files.py": {"gmai-mmbench"},
}
"""The makers of custom sets and the report on one, each of which handles a single format."""


def test_only_benchmark_packages_name_a_benchmark():
    root = Path(__file__).parents[2]
    modules = []
    for layer in ("dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe"):
        modules += [path for path in (root / layer).rglob("*.py") if "benchmarks" not in path.relative_to(root).parts]

    # The one module that lists the names.
    modules.remove(root / "dataset_builders" / "benchmark_names.py")
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        benchmarks = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in BENCHMARKS
        }
        name = path.relative_to(root).as_posix()
        assert benchmarks == ALLOWED_NAMES.get(name, set()), (
            f"{name} names {benchmarks}: move this to the benchmark's spec"
        )
