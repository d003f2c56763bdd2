"""Test the TSV reader against Python's csv module."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_tsv, read_tsv_rows

FIELD_TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(FIELD_TEXTS, min_size=3, max_size=3).filter(any), min_size=1, max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_csv_output_is_read_back(tmp_path_factory, rows, end, mark, quoting):
    if quoting == csv.QUOTE_MINIMAL:  # Python 3.11's writer does not quote carriage returns
        rows = [[text.replace("\r", "") for text in row] for row in rows]
        rows = [row for row in rows if any(row)] or [["1", "2", "3"]]
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter="\t", lineterminator=end, quoting=quoting)
    writer.writerows([["index", "image", "question"], *rows])
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    data = (b"\xef\xbb\xbf" if mark else b"") + stream.getvalue().encode()
    path.write_bytes(data)
    records = list(read_tsv(path))
    assert [list(record.fields.values()) for record in records] == rows

    # Any record can be read again from its start byte.
    for record in records:
        assert next(read_tsv_rows(path, record.start))[3] == list(record.fields.values())

    assert [record.start for record in records[1:]] == [record.end for record in records[:-1]]
    assert records[-1].end == len(data)


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_read_or_rejected(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    path.write_bytes(data)
    try:
        list(read_tsv(path))
    except BadInput as error:
        assert str(path) in str(error)


def test_quote_within_a_field_is_text(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('index\tquestion\n1\t5" nail\n2\tplain\n3\t6" nail\n')
    assert [record.fields["question"] for record in read_tsv(path)] == [
        '5" nail',
        "plain",
        '6" nail',
    ]


def test_unquoted_carriage_return_is_rejected(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b"index\tquestion\n1\tone\rtwo\n")
    with pytest.raises(BadInput, match="line 2: new-line character"):
        list(read_tsv(path))
