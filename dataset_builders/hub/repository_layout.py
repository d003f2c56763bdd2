"""Read a dataset repository's manifest and the YAML header of its card: configs, files, and the limits that the Hub sets for a header."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.card import SIZE_CATEGORIES
from dataset_builders.errors import BadInput
from dataset_builders.schema import SCHEMA_VERSION

REMEDY = "Build one with `medprobe build`, or name a dataset folder or Hub repository (ORG/NAME)."
SHORT_DESCRIPTION = 60
"""Maximum number of characters of a Space's short description."""
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
_RULES = {
    "license_name": (r"[a-z0-9.-]+", "lower-case letters, digits, `-` and `.`"),
    "license_link": (r"LICENSE(\.md)?|https?://\S+", "`LICENSE`, `LICENSE.md` or a web address"),
    "size_categories": ("|".join(map(re.escape, SIZE_CATEGORIES)), ", ".join(SIZE_CATEGORIES)),
}
_RULES_OF_SPACES = _RULES | {
    "short_description": (rf".{{1,{SHORT_DESCRIPTION}}}", f"at most {SHORT_DESCRIPTION} characters"),
    "emoji": (r"[^\x00-\x7f]+", "an emoji alone"),
    "colorFrom": ("|".join(COLOURS), f"one of {', '.join(COLOURS)}"),
    "colorTo": ("|".join(COLOURS), f"one of {', '.join(COLOURS)}"),
    "sdk": ("gradio|docker|static", "one of gradio, docker, static"),
    "python_version": (r"3(\.\d+){1,2}", "a version such as 3.11"),
}
"""Field -> what each of its values must match, and that in words."""
_LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same in C, where PyYAML was built with it: ten times as quick


def load_manifest(folder: Path) -> dict[str, Any] | None:
    """manifest.json as an object of the known version; None where there is no file. Raises BadInput for anything else."""
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_bytes())
        version = manifest["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path}: is not a manifest of a dataset repository. {REMEDY}") from None
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: the file has version {version}, and this medprobe reads version {SCHEMA_VERSION}. "
            "Build the dataset again with this medprobe, or use the one that wrote it."
        )
    return dict(manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a set of questions. Raises BadInput, as `load_manifest` does, and where it does not name its benchmark and splits."""
    manifest = load_manifest(folder)
    if manifest is not None and not (
        all(isinstance(manifest.get(key), str) for key in ("name", "format", "origin"))
        and "partial" in manifest
        and manifest["format"] in BENCHMARKS
        and isinstance(manifest.get("splits"), dict)
    ):
        raise BadInput(f"{folder / 'manifest.json'}: is not a manifest of a dataset repository. {REMEDY}")
    return manifest


def read_card(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(YAML metadata, text below it) of a README.md; None where it does not begin with a mapping between two lines of ---.

    Raises BadInput for a block that is no YAML and a file that is not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = re.match(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", text, re.DOTALL | re.MULTILINE)
        header = yaml.load(found[1], Loader=_LOADER) if found else None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise BadInput(
            f"{path}: does not begin with YAML metadata between two lines of --- that can be read."
        ) from None
    return (header, text[found.end() :]) if found and isinstance(header, dict) else (None, text)


def check_header(path: Path, header: dict[str, Any], kind: str) -> None:
    """Raise BadInput for metadata that the Hub would refuse, before anything is created there. `kind`: dataset or space.

    Source: the Hub's references of Spaces' configuration and of repository cards (licences, size categories).
    """
    for name, (pattern, takes) in (_RULES_OF_SPACES if kind == "space" else _RULES).items():
        values = header.get(name, [])
        for value in values if isinstance(values, list) else [values]:
            if not re.fullmatch(pattern, str(value)):
                raise BadInput(f"{path}: {name}: {str(value)[:80]!r}: the Hub takes {takes}.")


def data_files(card: dict[str, Any], present: list[str]) -> dict[str, dict[str, list[str]]]:
    """Config -> split -> Parquet files (of those present), as the card says, else by our folder names."""
    files: dict[str, dict[str, list[str]]] = {}
    configs = card.get("configs")
    for config in configs if isinstance(configs, list) else []:
        for split, patterns in patterns_of(config.get("data_files")) if isinstance(config, dict) else []:
            found = [name for pattern in patterns for name in present if fnmatch.fnmatchcase(name, pattern)]
            if found:
                files.setdefault(str(config.get("config_name")), {}).setdefault(split, []).extend(found)
    if not files:
        for name in present:
            match = re.fullmatch(r"(?:(\w+)/)?(\w+?)-\d{5}-of-\d{5}\.parquet", name)
            if match:
                config = "questions" if match[1] in (None, "data") else match[1]
                files.setdefault(config, {}).setdefault(match[2], []).append(name)
    if "questions" not in files and "questions_text" not in files and "default" in files:
        files["questions"] = files.pop("default")
    return files if "questions" in files or "questions_text" in files else {}


def patterns_of(stated: Any) -> list[tuple[str, list[str]]]:
    """The ways in which a card may state a config's data_files, all as (split, patterns)."""

    def listed(patterns: Any) -> list[str]:
        return [str(each) for each in (patterns if isinstance(patterns, list) else [patterns])]

    if isinstance(stated, dict):
        return [(str(split), listed(patterns)) for split, patterns in stated.items()]
    if isinstance(stated, list) and all(isinstance(each, dict) for each in stated):
        return [(str(each.get("split", "train")), listed(each.get("path"))) for each in stated]
    return [("train", listed(stated))] if stated else []
