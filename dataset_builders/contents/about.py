"""Read the statements on the patients of a custom set: about.yaml in its source, and the report of `medprobe curate deidentify`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text

ABOUT_FILE = "about.yaml"
ABOUT_FIELDS = ("deidentification", "approval", "consent", "license", "terms")
ABOUT_REMEDY = (
    f"Write {ABOUT_FILE} beside the set's files, with any of {', '.join(ABOUT_FIELDS)}, each a sentence: how the images were "
    "de-identified and by whom, the ethics approval and its number, consent, licence, terms of use."
)


def read_about(source: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Field -> what is said; `deidentification` is the report's counts where the set was made of de-identified images and nothing else is
    said. Raises BadInput for a file that is no such thing."""
    said: dict[str, str] = {}
    if (source / ABOUT_FILE).is_file():
        try:
            document = yaml.safe_load(read_text(source / ABOUT_FILE))
        except yaml.YAMLError:
            document = None
        if not isinstance(document, dict) or not all(
            key in ABOUT_FIELDS and isinstance(text, str) for key, text in document.items()
        ):
            raise BadInput(f"{source / ABOUT_FILE}: does not say {', '.join(ABOUT_FIELDS)} as texts. {ABOUT_REMEDY}")
        said = {key: " ".join(document[key].split()) for key in ABOUT_FIELDS if str(document.get(key) or "").strip()}
    report = manifest.get("deidentification")
    if "deidentification" not in said and isinstance(report, dict):
        said["deidentification"] = _format_report(report)
    return {key: said[key] for key in ABOUT_FIELDS if key in said}


def _format_report(report: Mapping[str, Any]) -> str:
    """The counts of `medprobe curate deidentify` in a sentence."""
    text = report.get("text")
    text = text if isinstance(text, dict) else {}
    return (
        f"by {report.get('made_by')} on {report.get('at')} ({report.get('method')}; "
        f"{text.get('images_with_text')} images with burned-in text, decided by a person: {text.get('decisions')})"
    )


def check_deidentification_stated(manifest: Mapping[str, Any]) -> None:
    """Raise BadInput where a custom set that is to be published says nothing of how its images were de-identified."""
    said = manifest.get("patients")
    if isinstance(said, dict) and not said.get("deidentification"):
        raise BadInput(
            "this set says nothing of how its images were de-identified. Make it from what `medprobe curate deidentify` wrote, or state "
            f"it yourself (also that there is nothing to remove), then build again. {ABOUT_REMEDY}"
        )
