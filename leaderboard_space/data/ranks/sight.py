"""The part of each result's score that comes from the images, where runs of the same model without the right ones are in the store.

See also: the numbers (`eval_harness/scores/sight.py`), in words (docs/sight.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import spec
from eval_harness.records.result import Images
from eval_harness.records.run import read_run
from eval_harness.scores.outcomes import OutcomeMatrix
from eval_harness.scores.sight import Sight, sight_of
from leaderboard_space.data.store.sections import Entry, Section

COLUMNS = ["metric", "unit", "cluster", "numerator", "denominator"]
"""Of the units of a run, which `derive.derivation.kept_units` keeps by metric and cluster."""


def arms_of(section: Section, entry: Entry) -> Mapping[Images, Entry]:
    """The runs of an account that differ from its result in the images alone, by what they showed; none of a printed number."""
    if not section.arms or entry.folder is None:
        return {}
    if "arms" not in section.memory:
        section.memory["arms"] = [(_identity(arm), arm) for arm in section.arms]
    wanted = _identity(entry)
    return {arm.result.method.image: arm for identity, arm in section.memory["arms"] if wanted and identity == wanted}


def sights_of(section: Section, metric: str) -> Mapping[str, Sight]:
    """Entry key -> what of its score in a metric comes from the images, of all questions of the section, as far as it is read."""
    found: Mapping[str, Mapping[str, Sight]] = section.memory.get("sights", {})
    return found.get(metric, {})


def read_sights(section: Section) -> None:
    """Compare the results of a section with their arms, in every metric: for `sights_of`, where it costs no reader any time."""
    found: dict[str, dict[str, Sight]] = {}
    for entry in section.entries if section.arms else ():
        for metric, sight in _sights(section, entry).items():
            found.setdefault(metric, {})[entry.key] = sight
    section.memory["sights"] = found


def _identity(entry: Entry) -> tuple[str | None, ...] | None:
    try:
        assert entry.folder is not None
        run = read_run(entry.folder)
    except (AssertionError, BadInput):
        return None
    return entry.account, run.model.name, run.model.revision, run.request.of_arms.model_dump_json()


def _sights(section: Section, entry: Entry) -> dict[str, Sight]:
    """Metric -> what of an entry's score comes from the images; nothing where its arms are not there or cannot be read."""
    arms = arms_of(section, entry)
    metrics = {name: info.compared for name, info in spec(section.family).metrics.items()}
    wanted = {name: images for name, images in metrics.items() if images and all(image in arms for image in images)}
    if not wanted:
        return {}
    try:
        tables = {image: pq.read_table(each.units, columns=COLUMNS) for image, each in [("real", entry), *arms.items()]}
    except (OSError, ValueError, TypeError):
        return {}
    real = tables["real"]
    same = {
        image: table for image, table in tables.items() if table.select(COLUMNS[:3]).equals(real.select(COLUMNS[:3]))
    }
    names = np.asarray(real["metric"].to_numpy(zero_copy_only=False), dtype=object)
    units, cluster = np.asarray(real["unit"].to_numpy(zero_copy_only=False), dtype=object), real["cluster"].to_numpy()
    found = {}
    for metric, images in wanted.items():
        of = ("real", *images)
        scores = [(entry if image == "real" else arms[image]).result.scores.get(metric) for image in of]
        if any(image not in same for image in of) or any(
            each is None or each.value is None or each.nonresponse for each in scores
        ):
            continue
        rows = np.flatnonzero(names == metric)
        top, base = (
            np.stack([same[image][name].to_numpy()[rows] for image in of]).astype(np.float32) for name in COLUMNS[3:]
        )
        paired = bool(np.all(base == base[0]))
        found[metric] = sight_of(
            OutcomeMatrix(of, metric, top, base, cluster[rows], units[rows], paired), with_share=False
        )
    return found
