"""A version with a question added or removed uploads a small share of its bytes, by Xet's own chunker; in a process of its own, since
hf_xet remembers what it sent. The figures: `python benchmarks/dataset_builders/update_upload.py --cases 1000` (benchmarks/README.md)."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_builders.build import build

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(300)
@pytest.mark.exhaustive  # it measures: nothing smaller shows the share
def test_a_question_more_or_less_is_a_small_upload(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/dataset_builders/update_upload.py", "--cases", "250", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    share = {line[:18].strip(): float(line.split()[-2]) for line in done.stdout.splitlines() if re.search(r"%$", line)}
    assert share.pop("first version") > 45  # each image once, though two configs hold it
    assert set(share) == {"case added", "case removed", "question removed", "question edited"}
    # A set of 250 cases has 22 MB; the bytes that one change touches are the same in a larger set.
    assert all(value < 5 for value in share.values()), share


def test_readers_find_pages_without_reading_all(tmp_path):
    build("mediconfusion", out=tmp_path / "set")
    for path in (tmp_path / "set").rglob("*.parquet"):
        column = pq.read_metadata(path).row_group(0).column(0)
        assert column.has_offset_index and column.has_column_index, path
