"""The modules that only another harness can import take names from ours that are there."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = ("dataset_builders", "eval_harness")


@pytest.mark.parametrize("path", sorted((ROOT / "eval_harness/interop").rglob("*.py")), ids=lambda path: path.stem)
def test_every_name_taken_from_our_modules_is_there(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
