"""The columns of a dataset repository: their types in Arrow, in the card's YAML and in the Parquet files' metadata.

See also: which columns a benchmark has (`benchmarks/`), writing them (`writer.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataset_builders.schema import QUESTION_TYPES


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a column. `label` columns hold positions in `names`; `struct` columns hold `fields`; `uri` is a text as long as an image,
    which Parquet stores once however many rows have it."""

    name: str
    names: tuple[str, ...] = ()
    fields: tuple[tuple[str, Kind], ...] = ()


TEXT, BOOL, NUMBER, INT, IMAGE = Kind("string"), Kind("bool"), Kind("float64"), Kind("int32"), Kind("image")
TEXTS, INTS, IMAGES = Kind("list of string"), Kind("list of int32"), Kind("list of image")

COMMON: dict[str, Kind] = {
    "question_id": TEXT,
    "case_id": TEXT,
    "image": IMAGE,
    "image_id": TEXT,
    "question": TEXT,
    "options": TEXTS,
    "answer": INTS,
    "question_type": Kind("label", QUESTION_TYPES),
    "task": TEXT,
    "modality": TEXT,
    "department": TEXT,
    "granularity": TEXT,
    "keyword": TEXT,
    "categories": TEXTS,
    "image_license": TEXT,
    "image_source": TEXT,
    "group": TEXT,
}

SEVERAL_IMAGES: dict[str, Kind] = {"more_images": IMAGES, "more_image_ids": TEXTS}
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
