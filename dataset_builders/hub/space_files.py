"""Collect the files of a Space of the board: the board's package and the two layers below it.

A Space build sees only its own folder, so these packages are uploaded with it (about 2 MB of text). Libraries that a Space lacks
(torch, transformers) are imported inside the functions that need them, which a test checks.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dataset_builders.errors import BadInput

BELOW = ("dataset_builders", "eval_harness")
SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints"})

LAUNCHER = '''"""Starts the board. Written by `medprobe publish --space`; the board itself is the package {package}."""

import runpy

runpy.run_module("{package}.app", run_name="__main__")
'''


WHEEL_LAUNCHER = '''"""Starts the board from the wheel beside this file. Written by `medprobe publish --space --wheel`."""

import os
import runpy
import sys
import tempfile
import zipfile
from pathlib import Path

place = tempfile.mkdtemp(prefix="medprobe-")  # a wheel without compiled parts, unpacked, is what installing it gives
zipfile.ZipFile(Path(__file__).with_name("{wheel}")).extractall(place)
sys.path.insert(0, place)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))  # for processes that it starts
runpy.run_module("{package}.app", run_name="__main__")
'''
READ_PRIVATE = "read-repos"
"""The OAuth scope with which a signed-in reader's token may read a private store, to open a pull request to it."""


def space_files(
    folder: Path, datasets: Sequence[str] = (), wheel: Path | None = None, private: bool = False
) -> tuple[dict[str, Path | bytes], list[str]]:
    """(path in the Space -> file or content, files left out).

    README.md (the Space's card, which names the `datasets` that the board shows) and requirements.txt go to the top, where a Space wants
    them, with an app.py that starts the package: from the `wheel`, or from the packages, which keep their names, so that imports hold.
    `private`: one of the datasets is, so that the card asks for the scope that reads it. Raises BadInput when the folder is no Space of
    that kind, or the file no wheel of medprobe.
    """
    from huggingface_hub import RepoCard

    folder = folder.resolve()
    for name in ("app.py", "README.md", "requirements.txt", "__init__.py"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder}: is no Space of the board: {name} is missing. Give the folder leaderboard_space.")
    files: dict[str, Path | bytes] = {"app.py": LAUNCHER.format(package=folder.name).encode()}
    files |= {name: folder / name for name in ("README.md", "requirements.txt")}
    if datasets:
        card = RepoCard.load(folder / "README.md")
        card.data["datasets"] = list(datasets)
        if private:
            card.data["hf_oauth_scopes"] = list(dict.fromkeys([*card.data.get("hf_oauth_scopes", []), READ_PRIVATE]))
        files["README.md"] = str(card).encode()
    if wheel is not None:
        _check_wheel(wheel, folder.name)
        files["app.py"] = WHEEL_LAUNCHER.format(wheel=wheel.name, package=folder.name).encode()
        return {**files, wheel.name: wheel}, []
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


def _check_wheel(wheel: Path, package: str) -> None:
    if not zipfile.is_zipfile(wheel) or f"{package}/app.py" not in zipfile.ZipFile(wheel).namelist():
        raise BadInput(f"--wheel {wheel}: is no wheel of medprobe. Build one in its folder: `pip wheel --no-deps .`")


def _files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """(path below the folder, path) of every file but what Python and editors leave there."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not SKIPPED & set(inside.parts):
            yield inside.as_posix(), path
