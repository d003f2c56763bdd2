"""The part of each result's score that comes from the images, where runs of the same model without the right ones are in the store.

See also: the numbers (`eval_harness/scores/sight.py`), in words (docs/sight.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import spec
from eval_harness.records.result import Images
from eval_harness.records.run import read_run
from eval_harness.scores.sight import Sight, sight
from leaderboard_space.data.store.sections import Entry, Section


def arms_of(section: Section, entry: Entry) -> Mapping[Images, Entry]:
    """The runs of an account that differ from its result in the images alone, by what they showed; none of a printed number."""
    if not section.arms or entry.folder is None:
        return {}
    if "arms" not in section.memory:
        section.memory["arms"] = [(_identity(arm), arm) for arm in section.arms]
    wanted = _identity(entry)
    return {arm.result.method.image: arm for identity, arm in section.memory["arms"] if wanted and identity == wanted}


def sights_of(section: Section, metric: str) -> Mapping[str, Sight]:
    """Entry key -> what of its score in a metric comes from the images, of all questions of the section."""
    key = f"sight {metric}"
    if key not in section.memory:
        info = spec(section.family).metrics.get(metric)
        needed = info.compared if info is not None else ()
        found = {}
        for entry in section.entries if needed and section.arms else ():
            arms = arms_of(section, entry)
            if all(image in arms for image in needed) and (
                of := _sight(entry, {image: arms[image] for image in needed}, metric)
            ):
                found[entry.key] = of
        section.memory[key] = found
    kept: Mapping[str, Sight] = section.memory[key]
    return kept


def _identity(entry: Entry) -> tuple[str | None, str, str] | None:
    try:
        assert entry.folder is not None
        run = read_run(entry.folder)
    except (AssertionError, BadInput):
        return None
    return entry.account, run.model.name, run.request.of_arms.model_dump_json()


def _sight(entry: Entry, arms: Mapping[Images, Entry], metric: str) -> Sight | None:
    """None where a run has no score, or its units cannot be read: the table then says nothing of it."""
    for each in (entry, *arms.values()):
        score = each.result.scores.get(metric)
        if each.units is None or score is None or score.value is None or score.nonresponse is not None:
            return None
    try:
        return sight(_units(entry, metric), {image: _units(arm, metric) for image, arm in arms.items()}, metric)
    except (BadInput, OSError, ValueError):
        return None


def _units(entry: Entry, metric: str) -> pd.DataFrame:
    columns = ["metric", "unit", "cluster", "numerator", "denominator"]
    return pq.read_table(entry.units, columns=columns, filters=pc.field("metric") == metric).to_pandas()
