"""Collect the files of a Space of the board: the board's package and the two layers below it.

A Space build sees only its own folder, so these packages are uploaded with it (about 2 MB of text). Libraries that a Space lacks
(torch, transformers) are imported inside the functions that need them, which a test checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository_layout import check_header, read_card

BELOW = ("dataset_builders", "eval_harness")
SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints"})

LAUNCHER = '''"""Starts the board. Written by `medprobe publish --space`; the board itself is the package {package}."""

import runpy

runpy.run_module("{package}.app", run_name="__main__")
'''


def space_files(folder: Path, datasets: Sequence[str] = ()) -> tuple[dict[str, Path | bytes], list[str]]:
    """(path in the Space -> file or content, files left out).

    README.md (the Space's card, which names the `datasets` that the board shows) and requirements.txt go to the top, where a Space wants
    them, with an app.py that starts the package; the packages keep their names, so that imports hold. Raises BadInput when the folder is
    no Space of that kind.
    """
    folder = folder.resolve()
    card, body = _checked(folder)
    files: dict[str, Path | bytes] = {"app.py": LAUNCHER.format(package=folder.name).encode()}
    files |= {name: folder / name for name in ("README.md", "requirements.txt")}
    if datasets:
        head = yaml.safe_dump({**card, "datasets": list(datasets)}, sort_keys=False, allow_unicode=True, width=1000)
        files["README.md"] = f"---\n{head}---\n{body}".encode()
    left_out = []
    for inside, path in _files_below(folder):
        if any(part.startswith(".") for part in Path(inside).parts):
            left_out.append(inside)
        elif inside not in files or inside == "app.py":
            files[f"{folder.name}/{inside}"] = path
    ours = Path(__file__).resolve().parents[2]
    for package in BELOW:
        files |= {f"{package}/{inside}": path for inside, path in _files_below(ours / package)}
    return dict(sorted(files.items())), left_out


def _files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """(path below the folder, path) of every file but what Python and editors leave there."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not SKIPPED & set(inside.parts):
            yield inside.as_posix(), path


def _checked(folder: Path) -> tuple[dict[str, Any], str]:
    """The Space's card (metadata, text)."""
    for name in ("app.py", "README.md", "requirements.txt", "__init__.py"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder}: is no Space of the board: {name} is missing. Give the folder leaderboard_space.")
    card, body = read_card(folder / "README.md")
    if card is None or card.get("sdk") != "gradio":
        raise BadInput(f"{folder / 'README.md'}: its metadata does not say `sdk: gradio`. Add it.")
    check_header(folder / "README.md", card, "space")
    if card.get("app_file", "app.py") != "app.py":
        raise BadInput(f"{folder / 'README.md'}: its metadata names another app_file than app.py. Correct it.")
    if not any(_is_main(node) for node in ast.parse((folder / "app.py").read_text(encoding="utf-8")).body):
        raise BadInput(f'{folder / "app.py"}: has no `if __name__ == "__main__":`, so a Space would start nothing.')
    return card, body


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test) and "__main__" in ast.dump(node.test)
