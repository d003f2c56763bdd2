"""Declare the data side of a benchmark (card, columns, facets, released fingerprints), and load the
spec of any layer.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dataset_builders.schema import ColumnType, Question

Spec = TypeVar("Spec")


@dataclass(frozen=True)
class CardText:
    """Texts of the dataset card, in Markdown.

    `summary` and `metrics` apply to every set in the format, including custom ones; the rest only
    to the released benchmark. `origin_note` says where its questions and images come from.
    """

    title: str
    summary: str
    metrics: str
    limits: str
    licence: str
    citation: str
    origin_note: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The data side of a benchmark. Defaults suit any set of questions.

    `facets`: the facets that the source labels, in the board's order (`category` is read from the
    list column `categories`: a question counts in each of its categories).
    `columns`: the benchmark's own columns; `scored`: those that a metric reads, so that the
    fingerprint covers them. `paper_questions`: split -> number of questions in the paper, and
    `paper_images`: number of images; they tell whether a set is complete if no released fingerprint
    is known.

    `released`: split -> fingerprint of the authors' complete set, if their files are known.
    `tasks`: metric -> whether a question belongs to those whose plain accuracy is the metric;
    eval.yaml offers them to the Hub (`card.py`). `not_in_results`: columns with texts about
    the images that runs never read, so runs and stores omit them. `configs`: further config of the
    reader -> what one of its rows is. `get_images`: advice for users who lack images. `any_source`:
    the reader takes any table or Hub repository, and the meaning of its columns (`vqa/reader.py`).
    `custom_preset`: how that reader reads a custom set in this format that no `curate` command
    wrote.

    The package also has `reader.py` with `read(source, images) -> SourceContent` (and
    `download_fields(source)` if images can be downloaded), and `phantoms.py` with `write(folder)`
    unless `any_source`.
    """

    card: CardText
    facets: tuple[str, ...] = ()
    default_split: str = "test"
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    scored: tuple[str, ...] = ()
    paper_questions: Mapping[str, int] = field(default_factory=dict)
    paper_images: int | None = None
    released: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, Callable[[Question], bool]] = field(default_factory=dict)
    not_in_results: tuple[str, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    get_images: str = "Give the folders that contain them with --images (may be repeated)."
    any_source: bool = False
    custom_preset: str = ""


def load_spec(layer: str, name: str, kind: type[Spec]) -> Spec:
    """Load the `SPEC` of a benchmark in a layer.

    Args:
        layer: package of the layer's benchmarks, such as `eval_harness.benchmarks`.
        name: name of the benchmark.
        kind: expected class.

    Raises:
        ModuleNotFoundError: the layer has no module for it.
    """
    # Import on demand: the command line must not load every benchmark of every layer.
    spec = importlib.import_module(module_name(layer, name)).SPEC
    assert isinstance(spec, kind)
    return spec


def module_name(layer: str, name: str) -> str:
    """Return the module or package of a benchmark in a layer.

    Args:
        layer: package of the layer's benchmarks, such as `eval_harness.benchmarks`.
        name: name of the benchmark.
    """
    return f"{layer}.{name.replace('-', '_')}"
