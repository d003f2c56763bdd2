"""Read what is known about images beside their pixels: caption, group (patient, figure, article), licence, source.

See also: the images themselves (`image_index.py`).
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.pairing import AMBIGUOUS_NAME, pair_names
from dataset_builders.contents.pseudonyms import normalize_group_name
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_json_records, read_text

MIN_CAPTION_CHARS = 100
"""Characters below which a caption says too little about its image (MediConfusion, section 2.2), counted after
stripping."""


IMAGE_COLUMNS = ("image", "caption", "group", "license", "source")
"""Columns that are read from a table, and their default names."""


def read_image_table(path: Path, **columns: str) -> pd.DataFrame:
    """The table of images: `COLUMNS` (texts, "" where unknown), one row per image. columns: those of the file that are called otherwise.

    .csv, .tsv, .parquet and .jsonl have named columns; .txt is `image<TAB>caption` without a header (as ROCO's
    captions.txt; a licences.txt beside it gives license, source, and as group the article). Raises BadInput for a
    missing file or column and for an image whose rows say different things. Groups are spelled as their ids are made
    (`Pseudonyms.group`), so that a patient is one however the spaces and accents are coded.
    """
    raw = read_dataframe(path)
    wanted = dict(zip(IMAGE_COLUMNS, IMAGE_COLUMNS, strict=True)) | columns
    for name, column in wanted.items():
        if name == "image" or column != name:
            require_columns(raw, path, [column], f"Name it with --{name}-column.")
    texts = {
        name: raw[column].map(image_text if name == "image" else cell_text) if column in raw else ""
        for name, column in wanted.items()
    }
    table = pd.DataFrame(texts, raw.index, dtype=object)
    table["group"] = table["group"].map(normalize_group_name)
    table = table[table["image"] != ""].drop_duplicates().reset_index(drop=True)
    duplicates = table["image"][table["image"].duplicated()]
    if len(duplicates):
        raise BadInput(
            f"{path}: image {duplicates.iloc[0]!r} has {(table['image'] == duplicates.iloc[0]).sum()} rows. Keep one row per image."
        )
    return table


def read_dataframe(path: Path) -> pd.DataFrame:
    """The table in a .csv, .tsv, .jsonl, .parquet or .txt file as it stands. Raises BadInput if it cannot be read."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file. Give a table with a column for the image and those it needs.")
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            frame: pd.DataFrame = pq.read_table(path).to_pandas(integer_object_nulls=True)  # 1 stays 1 beside a blank
            return frame
        if kind == ".jsonl":
            rows = read_json_records(path)
            if not all(isinstance(row, dict) for row in rows):
                raise BadInput(
                    f"{path}: holds a line that is no JSON object. Write one object per line, or save it as CSV."
                )
            return pd.DataFrame(rows, dtype=object)  # no number, date or missing field turns into another
        if kind == ".txt":
            # A line ends at a line feed alone: captions hold other signs that Python takes for its end.
            rows = [line.split("\t", 1) for line in read_text(path).split("\n") if line.strip()]
            raw = pd.DataFrame(
                [(row[0].strip(), row[1].strip() if len(row) > 1 else "") for row in rows], columns=["image", "caption"]
            )
            licences = path.with_name("licences.txt")
            return raw.merge(_roco_licences(licences), "left", "image") if licences.is_file() else raw
        if kind in (".csv", ".tsv"):
            return _read_csv(path)
    except BadInput:
        raise
    except (ValueError, OSError) as error:
        raise BadInput(f"{path}: cannot be read as {kind[1:]} ({error}). Save the table as CSV.") from None
    raise BadInput(f"{path}: is not .csv, .tsv, .jsonl, .parquet or .txt. Save the table as CSV.")


def require_columns(table: pd.DataFrame, where: Path | str, columns: Iterable[str], remedy: str) -> None:
    """Raise BadInput for the first of these columns that the table at `where` does not have."""
    for column in columns:
        if column not in table.columns:
            raise BadInput(f"{where}: has no column {column!r} (it has {', '.join(map(str, table.columns))}). {remedy}")


DELIMITER_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def _read_csv(path: Path) -> pd.DataFrame:
    """A table of texts; what separates the most columns in its header separates cells. Raises BadInput if cells would be lost or guessed:
    rows with more cells than the header (a caption whose commas are not quoted), a quotation mark that is never closed, a column named
    twice."""
    mark = "\0end"
    csv.field_size_limit(sys.maxsize)
    text = re.sub(r"\Asep=.\s*\n", "", read_text(path).strip("\r\n"))  # the first line of some of Excel's files
    first = {sign: len(next(csv.reader(io.StringIO(text, newline=""), delimiter=sign))) for sign in DELIMITER_NAMES}
    delimiter = max(first, key=lambda sign: (first[sign], sign == "\t" and path.suffix.lower() == ".tsv"))
    rows = list(csv.reader(io.StringIO(f"{text.rstrip()}\n{mark}\n", newline=""), delimiter=delimiter))
    if rows.pop() != [mark]:
        raise BadInput(f"{path}: a quotation mark is never closed, so the rest of the file cannot be parsed. Close it.")
    rows = [row for row in rows if row]
    head = [name.strip() for name in rows.pop(0)]
    twice = next((name for name in head if name and head.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{path}: has two columns called {twice!r}. Rename or remove one.")
    for number, row in enumerate(rows, 1):
        if any(cell.strip() for cell in row[len(head) :]):
            raise BadInput(
                f"{path}: row {number} ({row[0]!r}) has {len(row)} cells, the header {len(head)}. Put texts that hold the separator "
                f"({DELIMITER_NAMES[delimiter]}) in quotation marks."
            )
    named = [at for at, name in enumerate(head) if name]
    return pd.DataFrame(
        [[row[at] if at < len(row) else "" for at in named] for row in rows], columns=[head[at] for at in named]
    )


def _roco_licences(path: Path) -> pd.DataFrame:
    """ROCO's licences.txt (ROCO_ID, PMC_ID, CC) as image, source, license, group; the article an image comes from is its group."""
    rows = [row for row in csv.reader(read_text(path).split("\n")) if len(row) >= 3 and row[0] != "ROCO_ID"]
    table = pd.DataFrame(
        [(row[0].strip(), row[1].strip(), row[-1].strip()) for row in rows], columns=["image", "source", "license"]
    ).drop_duplicates("image")
    table["license"] = table["license"].map(lambda text: text if text.startswith("CC") else "unknown")
    table["group"] = table["source"].map(lambda text: found.group() if (found := re.match(r"PMC\d+", text)) else "")
    return table


def cell_text(value: Any) -> str:
    """The text of a cell; "" if it is empty."""
    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value).strip()


def image_text(value: Any) -> str:
    """The image that a cell names, with blanks that may be part of the file's name; "" for an empty one."""
    return str(value) if cell_text(value) else ""


def align_to_images(images: list[str], path: Path, **columns: str) -> pd.DataFrame:
    """The values of a table (`read_table`, with its `columns`) for each image file, in the order of `images` (all of a folder, relative
    paths); empty texts for an image without a row. Raises BadInput as `images_of_rows` does."""
    table = read_image_table(path, **columns)
    row_of = {
        at: row for row, at in enumerate(match_rows_to_images(list(table["image"]), images, path)) if at is not None
    }
    joined = table.reindex([row_of.get(at, -1) for at in range(len(images))]).reset_index(drop=True)
    joined["image"] = images
    return joined.fillna("")


def match_rows_to_images(names: list[str], images: list[str], path: Path) -> list[int | None]:
    """The position of the image that each name of a table means, by the rules of `pairing.py`; None where it is not there. Raises BadInput
    where no name means an image, or one may mean several."""
    found = pair_names(names, images)
    if AMBIGUOUS_NAME in found.reasons:
        raise BadInput(
            f"{path}: row {names[found.reasons.index(AMBIGUOUS_NAME)]!r} matches several images or rows. "
            "Name images by their path below the folder."
        )
    if images and all(at is None for at in found.found):
        raise BadInput(
            f"{path}: names none of the {len(images)} images (an image is called {images[0]}, a row {next(iter(names), '-')})."
        )
    return found.found
