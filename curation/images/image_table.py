"""Read image metadata: caption, group (patient, figure, article), licence and source.

See also: the images themselves (`image_index.py`).
"""

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
"""Shorter captions (stripped) say too little about the image (MediConfusion, section 2.2)."""

IMAGE_COLUMNS = ("image", "caption", "group", "license", "source")
"""Columns read from a table, and their default names."""


def read_image_table(path: Path, **columns: str) -> pd.DataFrame:
    """Read the table of image metadata, one row per image.

    A .csv, .tsv, .parquet or .jsonl file has named columns. A .txt file has lines
    `image<TAB>caption` without a header, like ROCO's captions.txt; a licences.txt beside it gives
    the licence, the source and the article, which is used as the group. Group names are normalised
    as they are for ids (`Pseudonyms.group`), so that a patient is not split by different encodings
    of spaces or accents.

    Args:
        path: the table.
        columns: overrides for non-default column names.

    Returns:
        Strings in the columns `IMAGE_COLUMNS`; "" if unknown.

    Raises:
        BadInput: the file or a column is missing, or an image has contradictory rows.
    """
    raw = read_dataframe(path)

    column_names = dict(zip(IMAGE_COLUMNS, IMAGE_COLUMNS, strict=True)) | columns
    for name, column in column_names.items():
        if name == "image" or column != name:
            require_columns(raw, path, [column], f"Name it with --{name}-column.")

    texts = {
        name: raw[column].map(image_text if name == "image" else cell_text) if column in raw else ""
        for name, column in column_names.items()
    }
    table = pd.DataFrame(texts, raw.index, dtype=object)

    table["group"] = table["group"].map(normalize_group_name)
    table = table[table["image"] != ""].drop_duplicates().reset_index(drop=True)

    duplicates = table["image"][table["image"].duplicated()]
    if len(duplicates):
        raise BadInput(
            f"{path}: image {duplicates.iloc[0]!r} has "
            f"{(table['image'] == duplicates.iloc[0]).sum()} rows. Keep one row per image."
        )
    return table


def read_dataframe(path: Path) -> pd.DataFrame:
    """Read a .csv, .tsv, .jsonl, .parquet or .txt file without changing its columns.

    Raises BadInput if it cannot be read.
    """
    if not path.is_file():
        raise BadInput(f"{path}: file not found. Give a table with an image column and the other required columns.")
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(path).to_pandas(integer_object_nulls=True)  # integers beside nulls stay integers
        if kind == ".jsonl":
            rows = read_json_records(path)
            if not all(isinstance(row, dict) for row in rows):
                raise BadInput(
                    f"{path}: contains a line that is not a JSON object. Write one object per line, or save it as CSV."
                )
            return pd.DataFrame(rows, dtype=object)  # `object` prevents type coercion
        if kind == ".txt":
            # Not `splitlines`: captions contain characters that Python treats as line breaks
            # (U+2028).
            rows = [line.split("\t", 1) for line in read_text(path).split("\n") if line.strip()]
            raw = pd.DataFrame(
                [(row[0].strip(), row[1].strip() if len(row) > 1 else "") for row in rows],
                columns=["image", "caption"],
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


def require_columns(table: pd.DataFrame, location: Path | str, columns: Iterable[str], remedy: str) -> None:
    """Raise BadInput for the first of these columns that the table at `location` lacks."""
    for column in columns:
        if column not in table.columns:
            raise BadInput(
                f"{location}: has no column {column!r} (it has {', '.join(map(str, table.columns))}). {remedy}"
            )


def table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries with string keys."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


DELIMITER_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV as strings, with the delimiter that gives the header the most columns.

    Raises:
        BadInput: a row has more cells than the header (an unquoted comma in a caption), a quotation
            mark is never closed, or two columns have the same name. In these cases cells would be
            lost or misread.
    """
    # If a quotation mark is never closed, this marker at the end becomes part of the last cell.
    end_marker = "\0end"
    csv.field_size_limit(sys.maxsize)
    text = re.sub(r"\Asep=.\s*\n", "", read_text(path).strip("\r\n"))  # Excel may write a `sep=` line first

    column_counts = {
        delimiter_sign: len(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_sign)))
        for delimiter_sign in DELIMITER_NAMES
    }
    delimiter = max(
        column_counts,
        key=lambda delimiter_sign: (
            column_counts[delimiter_sign],
            delimiter_sign == "\t" and path.suffix.lower() == ".tsv",
        ),
    )

    rows = list(csv.reader(io.StringIO(f"{text.rstrip()}\n{end_marker}\n", newline=""), delimiter=delimiter))
    if rows.pop() != [end_marker]:
        raise BadInput(f"{path}: a quotation mark is never closed, so the rest of the file cannot be parsed. Close it.")
    rows = [row for row in rows if row]
    header = [name.strip() for name in rows.pop(0)]

    duplicate_column = next((name for name in header if name and header.count(name) > 1), None)
    if duplicate_column is not None:
        raise BadInput(f"{path}: has two columns called {duplicate_column!r}. Rename or remove one.")
    for number, row in enumerate(rows, 1):
        if any(cell.strip() for cell in row[len(header) :]):
            raise BadInput(
                f"{path}: row {number} ({row[0]!r}) has {len(row)} cells, the header "
                f"{len(header)}. Put texts that contain the separator "
                f"({DELIMITER_NAMES[delimiter]}) in quotation marks."
            )
    named_positions = [position for position, name in enumerate(header) if name]
    return pd.DataFrame(
        [[row[position] if position < len(row) else "" for position in named_positions] for row in rows],
        columns=[header[position] for position in named_positions],
    )


def _roco_licences(path: Path) -> pd.DataFrame:
    """Read ROCO's licences.txt (ROCO_ID, PMC_ID, CC) as columns image, source, license, group."""
    rows = [row for row in csv.reader(read_text(path).split("\n")) if len(row) >= 3 and row[0] != "ROCO_ID"]
    table = pd.DataFrame(
        [(row[0].strip(), row[1].strip(), row[-1].strip()) for row in rows],
        columns=["image", "source", "license"],
    ).drop_duplicates("image")
    table["license"] = table["license"].map(lambda text: text if text.startswith("CC") else "unknown")
    table["group"] = table["source"].map(lambda text: match.group() if (match := re.match(r"PMC\d+", text)) else "")
    return table


def cell_text(value: Any) -> str:
    """Return the stripped text of a cell; "" if it is empty or null."""
    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value).strip()


def image_text(value: Any) -> str:
    """Return the image name in a cell; "" if it is empty.

    The name is not stripped, since a file name may begin or end with a space.
    """
    return str(value) if cell_text(value) else ""


def align_to_images(images: list[str], path: Path, **columns: str) -> pd.DataFrame:
    """Read a table (`read_image_table`) and align it with image files.

    Args:
        images: relative paths of all images of a folder.
        path: the table.
        columns: overrides for non-default column names.

    Returns:
        One row per image, in the order of `images`; empty strings for images without a row.

    Raises:
        BadInput: see `read_image_table` and `match_rows_to_images`.
    """
    table = read_image_table(path, **columns)

    row_of = {
        at: row for row, at in enumerate(match_rows_to_images(list(table["image"]), images, path)) if at is not None
    }

    # Position -1 is not in the index, so images without a row get empty values.
    joined = table.reindex([row_of.get(at, -1) for at in range(len(images))]).reset_index(drop=True)
    joined["image"] = images
    return joined.fillna("")


def match_rows_to_images(names: list[str], images: list[str], path: Path) -> list[int | None]:
    """Return the index of the image that each row names, or None, by the rules of `pairing.py`.

    Raises:
        BadInput: no name matches any image, or a name is ambiguous.
    """
    image_indices, reasons = pair_names(names, images)
    if AMBIGUOUS_NAME in reasons:
        raise BadInput(
            f"{path}: row {names[reasons.index(AMBIGUOUS_NAME)]!r} matches several images "
            "or rows. "
            "Name images by their path below the folder."
        )
    if images and all(index is None for index in image_indices):
        raise BadInput(
            f"{path}: matches none of the {len(images)} images (first image: {images[0]}, first "
            f"row: {next(iter(names), '-')})."
        )
    return image_indices
