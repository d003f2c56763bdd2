"""Check that every problem of a source is reported in one line naming file and entry, and that
nothing is written; test the TSV reader against Python's csv module.
"""

import base64
import csv
import io
import shutil
import struct
import zlib

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build, write_sources
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_tsv, read_tsv_rows
from tests import helpers
from tests.helpers import edit_json

MEDI, PROBMED, GMAI, HALT = BENCHMARKS[:4]


def build_error(family, source, out, **options):
    """Return the message of a build that must fail and leave nothing behind."""
    names = sorted(path.name for path in out.parent.iterdir())
    message = helpers.refused(build, family, source=source, out=out, **options)
    assert sorted(path.name for path in out.parent.iterdir()) == names
    return message


@pytest.fixture(scope="module")
def phantom_sources(tmp_path_factory):
    """Draw the phantom sources once per module."""
    folder = tmp_path_factory.mktemp("phantom_sources")
    for family in BENCHMARKS:
        write_sources(family, folder / family)
    return folder


@pytest.fixture
def source(request, phantom_sources, tmp_path):
    """Copy a source for editing, into a folder with the benchmark's name."""
    return shutil.copytree(phantom_sources / request.param, tmp_path / request.param)


def edit_tsv(path, change):
    """Edit a TSV file; `change` receives the list of rows (dicts)."""
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))

    change(rows)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def png_header(width, height):
    """Build a PNG that claims a size, as a decompression bomb does."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    # 8 bits of grey per pixel, without interlacing.
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


ENTRY_FAULTS = {
    (MEDI, "dataset.json"): {
        "missing field": (lambda d: d["90002"].pop("question"), ["90002", '"question" is missing']),
        "wrong type": (
            lambda d: d["90002"].update(question=["x"]),
            ["90002", "a list; expected a string"],
        ),
        "no option": (
            lambda d: d["90003"].update(im_1_correct="C"),
            ["90003", "'C'", "not an option"],
        ),
        "same answers": (
            lambda d: d["90001"].update(im_2_correct="A"),
            ["90001", "same correct option"],
        ),
        "same image": (
            lambda d: d["90001"].update(im_2=d["90001"]["im_1"], im_2_local=d["90001"]["im_1_local"]),
            ["90001", "both images are the same"],
        ),
        "escape": (
            lambda d: d["90004"].update(im_1="../../etc/passwd.png"),
            ["90004", "leaves its folder"],
        ),
        # The id 30001 names an image of pair 90001 already.
        "one id, two images": (
            lambda d: d["90009"].update(im_1_local=d["90001"]["im_1_local"]),
            ["90009", "30001", "another pair"],
        ),
        "surrogate": (
            lambda d: d["90005"].update(question="broken \ud800 text"),
            ["90005", "invalid character"],
        ),
    },
    (PROBMED, "probmed.json"): {
        "no answer": (
            lambda rows: rows[3].update(answer="maybe"),
            ["entry 3", "neither yes nor no"],
        ),
        "unknown qa_type": (
            lambda rows: rows[3].update(qa_type="colour_gt"),
            ["entry 3", "colour_gt"],
        ),
        "duplicates": (lambda rows: rows.append(dict(rows[0])), ["modality_gt", "occurs twice"]),
        "two images": (lambda rows: rows[1].update(image="chest_ct/1.png"), ["entry 1", "differs"]),
    },
    (HALT, "fake_qa_shuffle.json"): {
        "answer is no option": (
            lambda d: d["3"].update(answer_id="H"),
            ["entry 3", "'H'", "not an option"],
        ),
    },
    (HALT, "swap_img_shuffle.json"): {
        "answer contradicts": (lambda d: d["3"].update(answer="Else"), ["entry 3", "'Else'"]),
    },
    (GMAI, "GMAI-MMBench_VAL.tsv"): {
        "no option": (
            lambda rows: rows[4].update(answer="E", E=""),
            ["entry 5", "'E'", "not an option"],
        ),
        "duplicates index": (
            lambda rows: rows[4].update(index="1"),
            ["entry 1 (line 6)", "already occurs"],
        ),
        "hole in options": (
            lambda rows: rows[4].update(A="x", B="", C="y"),
            ["entry 5", "an option between them is empty"],
        ),
        "not base64": (lambda rows: rows[4].update(image="&" * 100), ["entry 5", "not base64"]),
        # A short text in the column of images refers to the row whose image it shares.
        "refers to nobody": (
            lambda rows: rows[4].update(image="999"),
            ["999", "neither an image nor the index"],
        ),
        "bomb": (
            lambda rows: rows[4].update(image=base64.b64encode(png_header(30_000, 30_000)).decode()),
            ["entry 5", "pixels"],
        ),
    },
}
FILE_FAULTS = {
    (MEDI, "dataset.json"): {
        "cut off": (lambda _: b'{"90001": {"question": "Wha', "not valid JSON"),
        "an empty object": (lambda _: b"{}", "no confusing pairs"),
        "latin-1 in one line": (
            lambda _: '{"1": {\n"question": "caf\xe9"}}'.encode("latin-1"),
            "line 2",
        ),
        "duplicates id": (lambda _: b'{"7": {}, "7": {}}', "'7' occurs twice"),
        "NaN": (lambda _: b'{"7": NaN}', "NaN"),
    },
    (MEDI, "images/30003.png"): {
        "cut off": (lambda data: data[: len(data) // 2], "damaged or cut off"),
    },
    (GMAI, "GMAI-MMBench_VAL.tsv"): {
        "header alone": (lambda data: data.split(b"\n")[0] + b"\n", "no question"),
        # The file ends within a row, so the row lacks fields.
        "cut off": (lambda data: data[: len(data) - 300], "fields, but the header has"),
        "open quote": (lambda data: data + b'99\t"never closed\n', "unexpected end of data"),
        "latin-1": (lambda data: data.replace(b"Counting", b"C\xf3unting", 1), "can't decode"),
        "NUL": (lambda data: data.replace(b"Counting", b"Count\x00ing", 1), "invalid character"),
    },
}


def parametrize_faults(table):
    """Parametrize over benchmark, file, change, and words of the message."""
    return pytest.mark.parametrize(
        ("source", "file", "change", "words"),
        [
            pytest.param(family, file, *case, id=f"{family}-{name}")
            for (family, file), faults in table.items()
            for name, case in faults.items()
        ],
        indirect=["source"],
    )


@parametrize_faults(ENTRY_FAULTS)
def test_invalid_entry_is_reported(source, tmp_path, file, change, words):
    (edit_tsv if file.endswith(".tsv") else edit_json)(source / file, change)
    message = build_error(source.name, source, tmp_path / "out")
    assert all(word in message for word in (file, *words)), message


@parametrize_faults(FILE_FAULTS)
def test_invalid_file_is_reported(source, tmp_path, file, change, words):
    path = source / file
    path.write_bytes(change(path.read_bytes()))
    message = build_error(source.name, source, tmp_path / "out")
    assert path.name in message and words in message, message

    # A damaged image is reported with the entry that shows it.
    assert "entry 90002" in message or path.suffix != ".png"


@pytest.mark.parametrize("source", [MEDI], indirect=True)
def test_all_problems_are_reported_at_once(source, tmp_path):
    def change(document):
        for pair in document.values():
            del pair["question"]
            pair["im_1_correct"] = "Z"

    edit_json(source / "dataset.json", change)
    message = build_error(MEDI, source, tmp_path / "out")

    # 14 pairs with two problems each, of which the message lists 20.
    assert message.startswith("28 problems")
    assert "and 8 more" in message


@pytest.mark.parametrize("source", [MEDI], indirect=True)
def test_byte_order_mark_is_accepted(source, tmp_path):
    text = (source / "dataset.json").read_text()

    # Python writes UTF-16 with a byte order mark.
    (source / "dataset.json").write_bytes(text.encode("utf-16"))
    build(MEDI, source=source, out=tmp_path / "out")


@pytest.mark.parametrize("source", [MEDI], indirect=True)
def test_ambiguous_image_is_rejected(source, tmp_path):
    second_folder = tmp_path / "other"
    second_folder.mkdir()
    Image.new("L", (8, 8), 3).save(second_folder / "30001.png")
    message = build_error(MEDI, source, tmp_path / "out", images=[second_folder, source / "images"])
    assert "two different files" in message

    # Two equal files of one name are not ambiguous.
    (second_folder / "30001.png").write_bytes((source / "images" / "30001.png").read_bytes())
    build(MEDI, source=source, images=[second_folder], out=tmp_path / "out")


@pytest.mark.parametrize("family", BENCHMARKS)
def test_empty_folder_is_rejected(family, tmp_path):
    (tmp_path / "source").mkdir()
    assert str(tmp_path / "source") in build_error(family, tmp_path / "source", tmp_path / "out")
    assert "no such folder" in build_error(family, tmp_path / "nowhere", tmp_path / "out")


def test_invalid_arguments_are_rejected(tmp_path):
    with pytest.raises(BadInput, match="probmed"):
        build("promed", out=tmp_path / "out")

    # Names become folders and arguments of commands.
    for name in ("a/b", "..", "", " x", "-x"):
        with pytest.raises(BadInput, match="--as"):
            build(MEDI, name=name or " ", out=tmp_path / "out")

    # A folder with files of the user must not be replaced by a build.
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(BadInput, match=r"chapter\.tex"):
        build(MEDI, out=tmp_path / "thesis")

    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        build(MEDI, out=tmp_path / "file")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "thesis"]


def test_failed_build_keeps_the_old_dataset(tmp_path):
    build(HALT, out=tmp_path / "out")
    manifest_bytes = (tmp_path / "out" / "manifest.json").read_bytes()
    write_sources(HALT, tmp_path / "source")
    (tmp_path / "source" / "swap_img_shuffle.json").write_text("{")
    build_error(HALT, tmp_path / "source", tmp_path / "out")
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest_bytes
    write_sources(HALT, tmp_path / "source")

    # A valid source then replaces the old dataset.
    edit_json(
        tmp_path / "source" / "swap_img_shuffle.json",
        lambda d: [d.pop(name) for name in list(d) if name != "0"],
    )
    build(HALT, source=tmp_path / "source", out=tmp_path / "out")
    assert (tmp_path / "out" / "manifest.json").read_bytes() != manifest_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("source", [GMAI], indirect=True)
@pytest.mark.parametrize("index", ["../../evil", "a\x07b", "e" * 300])
def test_index_that_is_not_a_file_name_is_rejected(source, tmp_path, index):
    def change(rows):
        rows[1]["index"] = index

    edit_tsv(source / "GMAI-MMBench_VAL.tsv", change)
    assert "is not a valid file name" in build_error(GMAI, source, tmp_path / "out")


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
