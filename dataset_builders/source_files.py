"""Read the authors' files: text in UTF-8 or UTF-16, JSON without duplicate keys, fields with their types checked.

See also: what the files mean (one builder per benchmark), images (`images/lookup.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.schema import LETTERS

ORIGIN_MARKER = "medprobe-origin.json"
"""A file in a source folder that says what it is: phantoms write `{"origin": "phantom"}`. Without it a source is real."""


def check_source_folder(source: Path) -> Path:
    """The folder of a source. Raises BadInput if it is not one."""
    if not source.is_dir():
        what = "is a file, not a folder" if source.exists() else "there is no such folder"
        raise BadInput(f"--source {source}: {what}. Give the folder that holds the authors' files.")
    return source


def required_file(folder: Path, name: str, what: str) -> Path:
    """`folder/name`; BadInput naming what the file is where it is absent."""
    path = folder / name
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file. It holds {what}; get it from the benchmark's authors.")
    return path


def is_phantom_source(folder: Path) -> bool:
    """True if the source folder was drawn by us."""
    marker = folder / ORIGIN_MARKER
    return marker.is_file() and read_json(marker) == {"origin": "phantom"}


def read_text(path: Path) -> str:
    """The text of a file in UTF-8 (with or without a byte order mark) or UTF-16 with one.

    Raises BadInput for an empty file and for bytes that are neither, naming the position; text is never guessed or dropped.
    """
    data = path.read_bytes()
    if not data.strip():
        raise BadInput(f"{path}: the file is empty. Get it again from the benchmark's authors.")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}, line {line}, byte {error.start}: not {encoding.removesuffix('-sig').upper()} text. "
            f"Save the file as UTF-8 (from a Western Windows: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8{path.suffix})."
        ) from None


def read_json(path: Path) -> Any:
    """The JSON document in a file. Raises BadInput for bad JSON (with its line) and for an object that names a key twice."""
    try:
        return json.loads(read_text(path), object_pairs_hook=_unique_keys_hook(path), parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg}). Is the file complete?") from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply to be a file of questions.") from None


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that a map names twice is an error, as in `read_json`."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.YAMLError(f"{clip(twice[0])} occurs twice in one map: keep one of them")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The YAML document in a file. Raises BadInput for bytes that are no text, yaml.YAMLError for what is no YAML or names a key twice."""
    return yaml.load(read_text(path), _UniqueKeys)


def read_json_records(path: Path) -> list[Any]:
    """The records of a JSON list or of a JSONL file (one object per line)."""
    if path.suffix.lower() != ".jsonl":
        document = read_json(path)
        if not isinstance(document, list):
            raise BadInput(f"{path}: holds {_describe_type(document)} where a list of questions was expected.")
        return document
    records = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                records.append(
                    json.loads(line, object_pairs_hook=_unique_keys_hook(path), parse_constant=_reject_constant)
                )
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}, line {number}: not valid JSON ({error.msg}). Is the file complete?") from None
    return records


def _unique_keys_hook(path: Path) -> Any:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise BadInput(f"{path}: the id or field {clip(duplicate)} occurs twice in one object. Keep one of them.")
        return made

    return hook


def _reject_constant(name: str) -> float:
    raise json.JSONDecodeError(f"{name} is not a JSON number", name, 0)


def _describe_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


class SourceEntry:
    """One entry of a source file, whose fields are taken out with their type checked; what is wrong goes to `problems`."""

    def __init__(self, value: Any, file: str, name: str | int, problems: Problems) -> None:
        self.file, self.name, self.problems = file, name, problems
        self.ok = isinstance(value, dict)
        self.value: dict[str, Any] = value if self.ok else {}
        if not self.ok:
            problems.add(file, name, f"is {_describe_type(value)} where an object was expected")

    def wrong(self, what: str) -> None:
        """Note a problem with this entry."""
        self.ok = False
        self.problems.add(self.file, self.name, what)

    def text(self, field: str) -> str:
        """A text that is not blank, stripped. Numbers are taken as text, since some sources write ids so."""
        value = self._get(field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        if value is not None and not isinstance(value, str):
            self.wrong(f'field "{field}" is {_describe_type(value)} where a text was expected')
        elif value is not None and not value.strip():
            self.wrong(f'field "{field}" is empty')
        elif value is not None:
            return check_text(value.strip(), self, field)
        return ""

    def number(self, field: str) -> float:
        """A number."""
        value = self._get(field)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.wrong(f'field "{field}" is {clip(value)}, not a number')
            return 0.0
        return float(value)

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._get(field)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.wrong(f'field "{field}" is {clip(value)}, not a list of texts')
            return ()
        return tuple(check_text(item.strip(), self, field) for item in value)

    def _get(self, field: str) -> Any:
        if field not in self.value:
            if self.value:
                self.wrong(f'field "{field}" is missing')
            return None
        value = self.value[field]
        if value is None:
            self.wrong(f'field "{field}" is null')
        return value


_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")


def check_text(text: str, entry: SourceEntry, field: str) -> str:
    """The text, if it can be stored; a lone surrogate (a broken \\ud800 escape) cannot, and a NUL must not."""
    if _UNSTORABLE.search(text):
        entry.wrong(f'field "{field}" holds a broken character')
        return ""
    return text


OPTION_MARK = r"\s*[(\[]?{}\s*(?:[).:\]]|[-–](?=\s))\s*"
"""The mark of an option before its text: `A:`, `(A)`, `a.`, `A - `."""


def strip_option_letters(options: Sequence[str]) -> tuple[str, ...]:
    """The options without the letters that some sources write before each (` A:glioma`); letters follow the position.

    A capital and a colon are always a mark. Any other is one where every option has its own: `A. fumigatus` is a name.

    >>> strip_option_letters([" A:glioma", "B: cyst"]), strip_option_letters(["A. fumigatus", "C. albicans"])
    (('glioma', 'cyst'), ('A. fumigatus', 'C. albicans'))
    """
    lettered = list(zip(LETTERS, options, strict=False))
    marks = [re.match(OPTION_MARK.format(letter), option, re.IGNORECASE) for letter, option in lettered]
    if all(marks):
        return tuple(option[mark.end() :] for mark, option in zip(marks, options, strict=False) if mark)
    return tuple(re.sub(rf"^\s*\(?{letter}\s*:\s*", "", option) for letter, option in lettered)


def is_safe_relative_path(name: str) -> bool:
    """True if a file name given by a source stays in the folder it is looked up in (no `..`, no absolute path, no drive)."""
    parts = name.replace("\\", "/").split("/")
    return bool(parts[0]) and ".." not in parts and not re.match("[A-Za-z]:", name) and "\x00" not in name
