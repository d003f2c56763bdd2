"""Check that a version with one case less shares almost all bytes with the one before, chunked by
content as the Hub does.
"""

import random
import re

import pyarrow.parquet as pq
from PIL import Image

from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import Case, CaseImage, Question, SourceContent


def make_case(rng, number):
    data = encode_png(Image.frombytes("L", (120, 120), rng.randbytes(120 * 120)))
    image = CaseImage(f"i{number}", lambda: data, len(data), f"{number}.png", "CC0-1.0")
    question = Question(f"q{number}", f"c{number}", image.image_id, f"What is {number}?", ("this", "that"), (0,))
    return Case(question.case_id, (image,), (question,))


def content_chunks(folder, cases):
    """Split the bytes of the Parquet files at certain pairs of bytes."""
    folder.mkdir()
    write_repository(
        folder,
        Description("set", "mediconfusion", "custom", None, False),
        SourceContent({"test": cases}),
    )
    paths = sorted(folder.rglob("*.parquet"))
    columns = [pq.read_metadata(path).row_group(0).column(0) for path in paths]
    assert all(column.has_offset_index and column.has_column_index for column in columns), "readers find single pages"

    # Splitting at byte patterns imitates content-defined chunking.
    return re.split(rb"(?<=\x07[\x00-\x3f])", b"".join(path.read_bytes() for path in paths))


def test_removing_a_case_changes_few_bytes(tmp_path):
    rng = random.Random(1)
    cases = [make_case(rng, number) for number in range(80)]
    old_chunks, new_chunks = (
        set(content_chunks(tmp_path / "first", cases)),
        content_chunks(tmp_path / "second", cases[:30] + cases[31:]),
    )
    assert sum(len(chunk) for chunk in new_chunks if chunk not in old_chunks) < 0.05 * sum(map(len, new_chunks))
