"""Declare the data side of a benchmark (card, columns, facets, released fingerprints), and load what any layer says of a benchmark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dataset_builders.schema import ColumnType, Question, SourceContent

Spec = TypeVar("Spec")


@dataclass(frozen=True)
class CardText:
    """Words for the dataset card; Markdown. `what` and `metrics` hold for every set of the format, also a user's own; the rest is of the
    released benchmark alone. `made_of`: a sentence on where its questions and images come from."""

    title: str
    what: str
    metrics: str
    limits: str
    licence: str
    citation: str
    made_of: str = ""


def _never_complete(content: SourceContent) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The data side of a benchmark; what is left out has a default that holds for any set of questions.

    `facets`: what the source really labels, in the order the board shows it; a facet not listed is unlabelled (`category` is read
    from the list column `categories`: a question counts once in each of its categories). `columns`: the benchmark's own columns beside
    the common ones; `scored`: those of them that a metric reads, so that the fingerprint covers them. `is_whole`: whether what was read
    has the paper's counts, asked where no released fingerprint is known.
    `released`: split -> fingerprint of the complete set that the authors released, where their files are known to us.
    `tasks`: metric -> the questions (with a key) whose plain accuracy it is; what eval.yaml offers to the Hub (`eval_yaml.py`).
    `not_in_results`: columns of texts about the images that nothing reads of a run, so that runs and stores do not hold them.
    `configs`: further configs of the reader's `Content.more` -> what a row of each is. `get_images`: what to tell users who lack images.

    The package also has `reader.py` with `read(source, images) -> Content` (and `download_fields(source)` where images can be downloaded)
    and `phantoms.py` with `write(folder)`.
    """

    card: CardText
    facets: tuple[str, ...] = ()
    default_split: str = "test"
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    scored: tuple[str, ...] = ()
    is_whole: Callable[[SourceContent], bool] = _never_complete
    released: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, Callable[[Question], bool]] = field(default_factory=dict)
    not_in_results: tuple[str, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    get_images: str = "Give the folders that hold them with --images (it may be given several times)."


def load_spec(layer: str, name: str, kind: type[Spec]) -> Spec:
    """The `SPEC` of a benchmark in a layer. Raises ModuleNotFoundError where the layer has nothing of it."""
    found = importlib.import_module(module_name(layer, name)).SPEC
    assert isinstance(found, kind)
    return found


def module_name(layer: str, name: str) -> str:
    """The module or package of a benchmark in a layer (`eval_harness.benchmarks`)."""
    return f"{layer}.{name.replace('-', '_')}"
