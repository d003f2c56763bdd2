"""Compute how much of each score comes from the images, using runs of the same model without the
correct images.

See also: the statistics (`eval_harness/store/sight.py`), their explanation (docs/sight.md).
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.records.result import Images
from eval_harness.store.sight import ImageShare, Sight, answered_share, compute_sight, read_arm_identity
from leaderboard_space.data.cache import READING, cached
from leaderboard_space.data.sections import Entry, Section

UNIT_COLUMNS = ["metric", "unit", "cluster", "numerator", "denominator"]


def image_arms(section: Section, entry: Entry) -> Mapping[Images, Entry]:
    """Find the runs that differ from a result only in the images shown.

    Returns:
        Image condition -> run; empty for a published number.
    """
    if not section.arms or entry.derived is None:
        return {}
    identity_of_entry = _identity(entry.derived)
    return {
        arm.result.method.image: arm
        for identity, arm in _arms_with_identity(section)
        if identity_of_entry and identity == identity_of_entry
    }


@cached(READING)
def _arms_with_identity(section: Section) -> list[tuple[tuple[str | None, ...] | None, Entry]]:
    return [(_identity(arm.derived), arm) for arm in section.arms if arm.derived is not None]


def metric_sights(section: Section, metric: str) -> Mapping[str, Sight]:
    """Return the image effect of each result in one metric, on all questions of a section, by entry
    key.
    """
    return section_sights(section).get(metric, {})


@cached(READING)
def section_sights(section: Section) -> Mapping[str, Mapping[str, Sight]]:
    """Compare the results of a section with their arms in every metric.

    The board calls it in advance, so that no visitor waits for the files.

    Returns:
        Metric -> entry key -> image effect.
    """
    by_metric: dict[str, dict[str, Sight]] = {}
    for entry in section.entries if section.arms else ():
        for metric, sight in _entry_sights(section, entry).items():
            by_metric.setdefault(metric, {})[entry.key] = sight
    return by_metric


@cached(READING)
def section_mirages(section: Section) -> Mapping[str, ImageShare]:
    """Compute how often each result's model answers although its image is withheld.

    Returns:
        Entry key -> share; only results with such a run.
    """
    shares: dict[str, ImageShare] = {}
    for entry in section.entries if section.arms else ():
        arm = image_arms(section, entry).get("withheld")
        with suppress(OSError, ValueError, TypeError):
            for share in answered_share("withheld", pd.read_parquet(str(arm.units))) if arm else ():
                shares[entry.key] = share
    return shares


def _identity(folder: Path) -> tuple[str | None, ...] | None:
    try:
        return read_arm_identity(folder)[1]
    except BadInput:
        return None


def _entry_sights(section: Section, entry: Entry) -> dict[str, Sight]:
    """Return metric -> image effect of a result; empty if arms are missing or cannot be read."""
    arms = {"real": entry, **image_arms(section, entry)}
    compared_images = {
        name: ("real", *info.compared) for name, info in eval_spec(section.family).metrics.items() if info.compared
    }
    compared_images = {
        name: images for name, images in compared_images.items() if all(image in arms for image in images)
    }
    try:
        # Only the columns needed: units files have tens of thousands of rows.
        tables = {
            image: pd.read_parquet(str(arm.units), columns=UNIT_COLUMNS)
            for image, arm in arms.items()
            if compared_images
        }
    except (OSError, ValueError, TypeError):
        return {}
    sights = {}
    for metric, images in compared_images.items():
        scores = [arms[image].result.scores.get(metric) for image in images]
        if all(arm is not None and arm.value is not None and not arm.nonresponse for arm in scores):
            with suppress(BadInput):  # raised for an arm that did not answer the same questions
                tables_of_arms: dict[str, pd.DataFrame] = {image: tables[image] for image in images[1:]}
                sights[metric] = compute_sight(tables[images[0]], tables_of_arms, metric, with_share=False)
    return sights
