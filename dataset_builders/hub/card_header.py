"""The YAML at the top of a README.md on the Hub, between two lines of ---: a dataset's card, and a Space's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same in C, where PyYAML was built with it: ten times as quick


def read_card_header(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(metadata, the text below it) of a card; None where it does not begin with a mapping between two lines of ---.

    Raises yaml.YAMLError for a block that is no YAML, UnicodeDecodeError for a file that is not UTF-8.
    """
    text = path.read_text(encoding="utf-8-sig")
    found = re.match(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", text, re.DOTALL | re.MULTILINE)
    header = yaml.load(found[1], Loader=LOADER) if found else None
    return (header, text[found.end() :]) if found and isinstance(header, dict) else (None, text)
