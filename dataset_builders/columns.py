"""The columns of a dataset repository: their types in Arrow, in the card's YAML and in the Parquet files' metadata.

See also: which columns a benchmark has (`benchmarks/`), writing them (`writer.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dataset_builders.schema import QUESTION_TYPES


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a column. `label` columns hold positions in `names`; `struct` columns hold `fields`; `uri` is a text as long as an image,
    which Parquet stores once however many rows have it. `meaning`: what it holds, for the card's table of columns."""

    name: str
    names: tuple[str, ...] = ()
    fields: tuple[tuple[str, Kind], ...] = ()
    meaning: str = field(default="", compare=False)

    def of(self, meaning: str) -> Kind:
        """The same type with a meaning."""
        return replace(self, meaning=meaning)


TEXT, BOOL, NUMBER, INT, IMAGE = Kind("string"), Kind("bool"), Kind("float64"), Kind("int32"), Kind("image")
TEXTS, INTS, IMAGES = Kind("list of string"), Kind("list of int32"), Kind("list of image")

COMMON: dict[str, Kind] = {
    "question_id": TEXT.of("unique within the dataset"),
    "case_id": TEXT.of("questions of one case are scored together"),
    "image": IMAGE.of("the image shown"),
    "image_id": TEXT.of("id of the image"),
    "question": TEXT.of("text of the question"),
    "options": TEXTS.of("the options, without letters; letters follow the position"),
    "answer": INTS.of("positions (from 0) of the right options; empty where the answer is hidden"),
    "question_type": Kind("label", QUESTION_TYPES).of("`single`, `multiple` or `yes_no`"),
    "task": TEXT.of("what is asked (GMAI-MMBench: clinical task)"),
    "modality": TEXT.of("imaging modality"),
    "department": TEXT.of("clinical department"),
    "granularity": TEXT.of("what the question points at: image, box, mask or contour"),
    "keyword": TEXT.of("the finding or label asked about"),
    "categories": TEXTS.of("categories of the question; it counts once in each of them"),
    "image_license": TEXT.of("licence of the image"),
    "image_source": TEXT.of("where the image comes from"),
    "group": TEXT.of("patient, study or article of the image: never in two splits, and a cluster of the intervals"),
}

SEVERAL_IMAGES: dict[str, Kind] = {
    "more_images": IMAGES.of("images after the first, in order"),
    "more_image_ids": TEXTS.of("their ids"),
}
"""The images after the first; only sets in which a question shows several have these columns."""

TREE_COLUMNS: dict[str, Kind] = dict.fromkeys(("subject", "category", "modality", "keyword"), TEXT)
ANSWER_COLUMNS: dict[str, Kind] = {"question_id": TEXT, "answer": INTS}


def arrow_type(kind: Kind) -> pa.DataType:
    """The Arrow type of a column. Image bytes are dictionary-coded, so that Parquet stores a repeated image once."""
    image = pa.struct([("bytes", pa.dictionary(pa.int32(), pa.binary())), ("path", pa.string())])
    plain = {"string": pa.string(), "bool": pa.bool_(), "float64": pa.float64(), "int32": pa.int32(), "image": image}
    plain["uri"] = pa.dictionary(pa.int32(), pa.string())
    if kind.name == "label":
        return pa.int64()
    if kind.name == "list of struct":
        return pa.list_(pa.struct([(name, arrow_type(field)) for name, field in kind.fields]))
    if kind.name.startswith("list of "):
        return pa.list_(plain[kind.name.removeprefix("list of ")])
    return plain[kind.name]


def yaml_features(columns: dict[str, Kind]) -> list[dict[str, Any]]:
    """`features` of the card's `dataset_info`, as datasets 2.18 to 5 read it."""
    return [{"name": name, **_yaml(kind)} for name, kind in columns.items()]


def _yaml(kind: Kind) -> dict[str, Any]:
    if kind.name == "label":
        return {"dtype": {"class_label": {"names": {str(n): label for n, label in enumerate(kind.names)}}}}
    if kind.name == "list of struct":
        return {"list": yaml_features(dict(kind.fields))}
    if kind.name.startswith("list of "):
        return {"list": kind.name.removeprefix("list of ")}
    return {"dtype": _value(kind)}


def features_metadata(columns: dict[str, Kind]) -> dict[bytes, bytes]:
    """The key that `datasets` looks for in a Parquet file, for those who open a single file without the card."""
    features = {name: _feature(kind) for name, kind in columns.items()}
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def _feature(kind: Kind) -> Any:
    if kind.name == "image":
        return {"_type": "Image"}
    if kind.name == "label":
        return {"names": list(kind.names), "_type": "ClassLabel"}
    if kind.name == "list of struct":
        return [{name: _feature(field) for name, field in kind.fields}]
    if kind.name.startswith("list of "):
        return {"feature": _feature(Kind(kind.name.removeprefix("list of "))), "_type": "Sequence"}
    return {"dtype": _value(kind), "_type": "Value"}


def _value(kind: Kind) -> str:
    return "string" if kind.name == "uri" else kind.name
