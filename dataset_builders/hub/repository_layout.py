"""What a dataset repository says of itself: its manifest, and the configs, files and labels in the header of its card."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from dataset_builders.hub.card_header import read_card_header
from dataset_builders.schema import SCHEMA_VERSION

REMEDY = "Build one with `medprobe build`, or name a dataset folder or Hub repository (ORG/NAME)."


def read_manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        check_version(str(path), manifest)
        known = all(isinstance(manifest[key], str) for key in ("name", "format", "origin")) and "partial" in manifest
        if not known or manifest["format"] not in BENCHMARKS or not isinstance(manifest["splits"], dict):
            raise KeyError
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path}: is not a manifest of a dataset repository. {REMEDY}") from None
    return dict(manifest)


def check_version(path: str, manifest: dict[str, Any]) -> None:
    """Raise BadInput for a manifest of another version."""
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: the file has version {manifest['schema_version']}, and this medprobe reads version {SCHEMA_VERSION}. "
            "Build the dataset again with this medprobe, or use the one that wrote it."
        )


def read_card(folder: Path) -> dict[str, Any]:
    """The YAML at the top of the card; empty where there is none."""
    path = folder / "README.md"
    if not path.is_file():
        return {}
    try:
        return read_card_header(path)[0] or {}
    except (UnicodeDecodeError, yaml.YAMLError):
        raise BadInput(f"{path}: the YAML at its top cannot be read.") from None


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


def label_names(folder: Path, card: dict[str, Any]) -> dict[str, list[str]]:
    """Names of ClassLabel columns by column, from the card."""
    labels: dict[str, list[str]] = {}
    infos = card.get("dataset_info")
    for info in infos if isinstance(infos, list) else [infos] if isinstance(infos, dict) else []:
        for feature in info.get("features") or []:
            dtype = feature.get("dtype") if isinstance(feature, dict) else None
            names = dtype.get("class_label", {}).get("names") if isinstance(dtype, dict) else None
            if isinstance(names, dict):
                labels[feature["name"]] = [str(names[key]) for key in sorted(names, key=int)]
            elif isinstance(names, list):
                labels[feature["name"]] = [str(name) for name in names]
    return labels
