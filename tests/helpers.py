"""Small helpers of many tests: the message of a refusal, an edit of a JSON file, a JSON Lines file,
a dataset that is built and opened.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import Repository, open_repository


def refused(action: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the one-line message of the BadInput that a call raises."""
    with pytest.raises(BadInput) as caught:
        action(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Rewrite a JSON file after `change` has edited its document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """Write a JSON Lines file with one line per record."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def build_and_open(family: str, **options: Any) -> Repository:
    """Build a dataset with the options of `build`, and open it."""
    return open_repository(build(family, **options).folder)
