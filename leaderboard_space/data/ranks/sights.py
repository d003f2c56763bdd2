"""The part of each result's score that comes from the images, if the store has runs of the same model without the right ones.

See also: the numbers (`eval_harness/scores/sight.py`), in words (docs/sight.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.records.result import Images
from eval_harness.scores.outcome_matrix import pack_outcomes
from eval_harness.scores.sight import Sight, compute_sight_of_outcomes
from eval_harness.store.sight_report import read_arm_identity
from leaderboard_space.data.cache import READING, cached
from leaderboard_space.data.store.sections import Entry, Section

UNIT_COLUMNS = ["metric", "unit", "cluster", "numerator", "denominator"]


def image_arms(section: Section, entry: Entry) -> Mapping[Images, Entry]:
    """The runs of an account that differ from its result in the images alone, by what they showed; none of a printed number."""
    if not section.arms or entry.derived is None:
        return {}
    wanted = _identity(entry.derived)
    return {
        arm.result.method.image: arm for identity, arm in _arms_with_identity(section) if wanted and identity == wanted
    }


@cached(READING)
def _arms_with_identity(section: Section) -> list[tuple[tuple[str | None, ...] | None, Entry]]:
    return [(_identity(arm.derived), arm) for arm in section.arms if arm.derived is not None]


def metric_sights(section: Section, metric: str) -> Mapping[str, Sight]:
    """Entry key -> what of its score in a metric comes from the images, of all questions of the section, as far as it is read."""
    return section_sights(section).get(metric, {})


@cached(READING)
def section_sights(section: Section) -> Mapping[str, Mapping[str, Sight]]:
    """Compare the results of a section with their arms in every metric. The board calls it in advance: no reader waits for the files."""
    found: dict[str, dict[str, Sight]] = {}
    for entry in section.entries if section.arms else ():
        for metric, sight in _entry_sights(section, entry).items():
            found.setdefault(metric, {})[entry.key] = sight
    return found


def _identity(folder: Path) -> tuple[str | None, ...] | None:
    try:
        return read_arm_identity(folder)[1]
    except BadInput:
        return None


def _entry_sights(section: Section, entry: Entry) -> dict[str, Sight]:
    """Metric -> what of an entry's score comes from the images; nothing where its arms are not there or cannot be read."""
    arms = {"real": entry, **image_arms(section, entry)}
    wanted = {
        name: ("real", *info.compared) for name, info in eval_spec(section.family).metrics.items() if info.compared
    }
    wanted = {name: images for name, images in wanted.items() if all(image in arms for image in images)}
    try:
        tables = {
            image: pd.read_parquet(str(each.units), columns=UNIT_COLUMNS) for image, each in arms.items() if wanted
        }
    except (OSError, ValueError, TypeError):
        return {}
    found = {}
    for metric, images in wanted.items():
        scores = [arms[image].result.scores.get(metric) for image in images]
        if all(each is not None and each.value is not None and not each.nonresponse for each in scores):
            with suppress(BadInput):  # an arm that did not answer the same questions
                found[metric] = compute_sight_of_outcomes(
                    pack_outcomes({image: tables[image] for image in images}, metric), with_share=False
                )
    return found
