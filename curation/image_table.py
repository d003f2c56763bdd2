"""Reads what is known about images beside their pixels: caption, group (patient, figure, article), licence, source.

Not here: the images themselves (`image_index.py`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text

MIN_CAPTION = 100
"""Characters below which a caption says too little about its image (MediConfusion, section 2.2), counted after
stripping."""


@dataclass(frozen=True)
class Columns:
    """Which column of the table holds what; a column that is not there is left empty, `image` must be."""

    image: str = "image"
    caption: str = "caption"
    group: str = "group"
    license: str = "license"
    source: str = "source"


def read_table(path: Path, columns: Columns | None = None) -> pd.DataFrame:
    """The table of images: columns image, caption, group, license, source (texts, "" where unknown), one row per image.

    .csv, .tsv, .parquet and .jsonl have named columns; .txt is `image<TAB>caption` without a header (as ROCO's
    captions.txt; a licences.txt beside it gives license, source, and as group the article). Raises BadInput for a
    missing file or column and for an image that is named twice.
    """
    columns = columns or Columns()
    raw = read_any(path)
    wanted = vars(columns)
    defaults = vars(Columns())
    for name, column in wanted.items():
        if column not in raw.columns and (name == "image" or column != defaults[name]):
            raise BadInput(
                f"{path}: has no column {column!r} (it has {', '.join(map(str, raw.columns))}). Name it with --{name}-column."
            )
    table = pd.DataFrame({name: _texts(raw, column) for name, column in wanted.items()})
    doubled = table["image"][table["image"].duplicated()]
    if len(doubled):
        raise BadInput(
            f"{path}: image {doubled.iloc[0]!r} has {(table['image'] == doubled.iloc[0]).sum()} rows. Keep one row per image."
        )
    return table


def read_any(path: Path) -> pd.DataFrame:
    """The table in a .csv, .tsv, .jsonl, .parquet or .txt file as it stands. Raises BadInput where it cannot be read."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file. Give a table with a column for the image and those it needs.")
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pd.read_parquet(path)
        if kind == ".jsonl":
            return pd.read_json(path, lines=True, dtype=False)
        if kind == ".txt":
            rows = [line.split("\t", 1) for line in read_text(path).splitlines() if line.strip()]
            raw = pd.DataFrame(
                [(row[0].strip(), row[1] if len(row) > 1 else "") for row in rows], columns=["image", "caption"]
            )
            licences = path.with_name("licences.txt")
            return raw.merge(_roco_licences(licences), "left", "image") if licences.is_file() else raw
        if kind in (".csv", ".tsv"):
            text = read_text(path).splitlines(keepends=True)
            return pd.DataFrame(csv.DictReader(text, delimiter="\t" if kind == ".tsv" else ","))
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path}: cannot be read as {kind[1:]} ({error}). Save the table as CSV.") from None
    raise BadInput(f"{path}: is none of .csv, .tsv, .jsonl, .parquet, .txt. Save the table as CSV.")


def _roco_licences(path: Path) -> pd.DataFrame:
    """ROCO's licences.txt (ROCO_ID, PMC_ID, CC) as image, source, license, group; the article an image comes from is its group."""
    rows = [row for row in csv.reader(read_text(path).splitlines()) if len(row) >= 3 and row[0] != "ROCO_ID"]
    table = pd.DataFrame(
        [(row[0].strip(), row[1].strip(), row[-1].strip()) for row in rows], columns=["image", "source", "license"]
    ).drop_duplicates("image")
    table["license"] = table["license"].map(lambda text: text if text.startswith("CC") else "unknown")
    table["group"] = table["source"].map(lambda text: found.group() if (found := re.match(r"PMC\d+", text)) else "")
    return table


def _texts(raw: pd.DataFrame, column: str) -> pd.Series:
    if column not in raw.columns:
        return pd.Series([""] * len(raw), index=raw.index, dtype=object)
    return raw[column].map(lambda value: "" if pd.isna(value) else str(value).strip()).astype(object)


def join_table(images: list[str], table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table's row of each image file, in the order of `images` (relative paths), empty texts where it has none.

    A row names its image by relative path, by file name, or by file name without extension, whichever fits first.
    Raises BadInput where no image at all is in the table, and where one row would fit several images.
    """
    by_name = {name: row for row, name in enumerate(table["image"])}
    found: list[int | None] = []
    for image in images:
        pure = PurePosixPath(image)
        found.append(next((by_name[name] for name in (image, pure.name, pure.stem) if name in by_name), None))
    if images and all(row is None for row in found):
        raise BadInput(
            f"{path}: names none of the {len(images)} images (an image is called {images[0]}, a row {next(iter(by_name), '-')})."
        )
    taken: dict[int, str] = {}
    for image, row in zip(images, found, strict=True):
        if row is not None and taken.setdefault(row, image) != image:
            name = table["image"].iloc[row]
            raise BadInput(
                f"{path}: row {name!r} fits both {taken[row]} and {image}. Name images by their path below the folder."
            )
    joined = table.reindex([-1 if row is None else row for row in found]).reset_index(drop=True)
    joined["image"] = images
    return joined.fillna("")
