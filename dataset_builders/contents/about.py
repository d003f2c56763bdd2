"""Read a custom set's statements about its patients: about.yaml in its source, and the report of
`medprobe curate deidentify`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_yaml

ABOUT_FILE = "about.yaml"
ABOUT_FIELDS = ("deidentification", "approval", "consent", "license", "terms")
ABOUT_REMEDY = (
    f"Write {ABOUT_FILE} beside the set's files, with any of {', '.join(ABOUT_FIELDS)}, each a sentence: how the images were "
    "de-identified and by whom, the ethics approval and its number, consent, licence, terms of use."
)


def read_about(source: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Read a custom set's statements about its patients.

    Args:
        source: the source folder.
        manifest: the source's manifest.

    Returns:
        Field -> statement. `deidentification` defaults to the report's counts if the images were
            de-identified by medprobe.

    Raises:
        BadInput: about.yaml is invalid.
    """
    statements: dict[str, str] = {}
    if (source / ABOUT_FILE).is_file():
        try:
            document = read_yaml(source / ABOUT_FILE)
        except yaml.YAMLError:
            # Invalid YAML gets the same message as a wrong structure.
            document = None
        if not isinstance(document, dict) or not all(
            key in ABOUT_FIELDS and isinstance(text, str) for key, text in document.items()
        ):
            raise BadInput(
                f"{source / ABOUT_FILE}: must contain only {', '.join(ABOUT_FIELDS)}, as strings. {ABOUT_REMEDY}"
            )
        statements = {
            key: " ".join(document[key].split()) for key in ABOUT_FIELDS if str(document.get(key) or "").strip()
        }

    report = manifest.get("deidentification")
    if "deidentification" not in statements and isinstance(report, dict):
        statements["deidentification"] = _format_report(report)

    # Fixed order, so that equal statements give equal cards.
    return {key: statements[key] for key in ABOUT_FIELDS if key in statements}


def _format_report(report: Mapping[str, Any]) -> str:
    """Format the counts of `medprobe curate deidentify` as a phrase."""
    text = report.get("text")
    text = text if isinstance(text, dict) else {}
    return (
        f"by {report.get('made_by')} on {report.get('at')} ({report.get('method')}; "
        f"{text.get('images_with_text')} images with burned-in text, decided by a person: {text.get('decisions')})"
    )


def check_deidentification_stated(manifest: Mapping[str, Any]) -> None:
    """Check before publishing that a custom set states how its images were de-identified.

    Args:
        manifest: the dataset's manifest.

    Raises:
        BadInput: there is no such statement.
    """
    statements = manifest.get("patients")
    if isinstance(statements, dict) and not statements.get("deidentification"):
        raise BadInput(
            "this set does not state how its images were de-identified. Make it from the output of `medprobe curate deidentify`, or "
            f"state it yourself (even if there is nothing to remove), then build again. {ABOUT_REMEDY}"
        )
