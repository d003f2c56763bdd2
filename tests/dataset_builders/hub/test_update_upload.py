"""A version with a case less shares almost all of its bytes with the one before, cut where the content says, as the Hub cuts."""

import random
import re

import pyarrow.parquet as pq
from PIL import Image

from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import Case, CaseImage, Question, SourceContent


def case(rng, number):
    data = encode_png(Image.frombytes("L", (120, 120), rng.randbytes(120 * 120)))
    image = CaseImage(f"i{number}", lambda: data, len(data), f"{number}.png", "CC0-1.0")
    asked = Question(f"q{number}", f"c{number}", image.image_id, f"What is {number}?", ("this", "that"), (0,))
    return Case(asked.case_id, (image,), (asked,))


def pieces(folder, cases):
    """The bytes of the Parquet files, cut at certain pairs of bytes."""
    folder.mkdir()
    write_repository(folder, Description("set", "mediconfusion", "custom", None, False), SourceContent({"test": cases}))
    paths = sorted(folder.rglob("*.parquet"))
    columns = [pq.read_metadata(path).row_group(0).column(0) for path in paths]
    assert all(column.has_offset_index and column.has_column_index for column in columns), "readers find single pages"
    return re.split(rb"(?<=\x07[\x00-\x3f])", b"".join(path.read_bytes() for path in paths))


def test_a_case_less_changes_a_small_share_of_the_bytes(tmp_path):
    rng = random.Random(1)
    cases = [case(rng, number) for number in range(80)]
    known, second = set(pieces(tmp_path / "first", cases)), pieces(tmp_path / "second", cases[:30] + cases[31:])
    assert sum(len(piece) for piece in second if piece not in known) < 0.05 * sum(map(len, second))
