"""The order of the layers: no import points up, and light modules stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("dataset_builders", "eval_harness", "leaderboard_space", "curation")
MAY_IMPORT = {
    "dataset_builders": {"dataset_builders"},
    "eval_harness": {"dataset_builders", "eval_harness"},
    "leaderboard_space": {"dataset_builders", "eval_harness", "leaderboard_space"},
    "curation": {"dataset_builders", "eval_harness", "curation"},
}
HEAVY = ("torch", "transformers", "gradio", "open_clip", "openai", "datasets")


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_no_import_points_up(layer):
    for path in (ROOT / layer).rglob("*.py"):
        ours = {name.split(".")[0] for name in imports(path)} & (set(LAYERS) | {"medprobe"})
        assert ours <= MAY_IMPORT[layer], f"{path.relative_to(ROOT)} imports {ours - MAY_IMPORT[layer]}"


@pytest.mark.parametrize("path", sorted((ROOT / "leaderboard_space").rglob("*.py")), ids=lambda p: p.name)
def test_the_board_imports_only_light_modules_of_the_harness(path):
    for name in imports(path):
        assert not name.startswith(
            ("eval_harness.models", "eval_harness.runs.runner", "dataset_builders.sources.phantoms")
        )


@pytest.mark.parametrize(
    "module", ["dataset_builders.build", "dataset_builders.hub.repository", "eval_harness.scores", "medprobe"]
)
def test_light_modules_import_nothing_heavy(module):
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True, timeout=120
    )
    loaded = ast.literal_eval(done.stdout)
    assert "torch" not in loaded
    assert "gradio" not in loaded
    if module in ("medprobe", "eval_harness.scores"):
        assert loaded == []
