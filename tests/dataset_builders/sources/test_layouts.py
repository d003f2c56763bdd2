"""Test rarer source layouts: hidden answers, image references, ids per image type, VQA-RAD pairs,
multiple choice.
"""

import base64
import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import encode_png
from tests.helpers import build_and_open


def grey_png(value, size=32):
    return encode_png(Image.new("L", (size, size), value))


def write_tsv(path, rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)


def gmai_row(index, answer, image=None, **extra_columns):
    data = base64.b64encode(image or grey_png(index)).decode()
    return {
        "index": index,
        "image": data,
        "question": f"Which, {index}?",
        "A": "a",
        "B": "b",
        "C": "c",
        "answer": answer,
        **extra_columns,
    }


@pytest.mark.parametrize("answer", ["A,C", "AC", "['A', 'C']", "C;A"])
def test_several_letters_are_multiple_choice(tmp_path, answer):
    write_tsv(tmp_path / "x.tsv", [gmai_row(1, answer), gmai_row(2, "B")])
    questions = build_and_open("gmai-mmbench", source=tmp_path, out=tmp_path / "out").questions("validation")
    assert list(questions["question_type"]) == ["multiple", "single"]
    assert list(questions["answer"]) == [[0, 2], [1]]


def test_answers_decide_the_split(tmp_path):
    rows = [
        # The column `split` is wrong on purpose: only the answers count.
        gmai_row(1, "A", split="TEST"),
        gmai_row(2, "", split="VAL"),
        gmai_row("0003", "B", image=grey_png(9), split=""),
    ]
    write_tsv(tmp_path / "GMAI_mm_bench_TEST_part_1.tsv", rows)
    repository = build_and_open("gmai-mmbench", source=tmp_path, out=tmp_path / "out")
    assert list(repository.questions("validation")["question_id"]) == ["1", "0003"]
    assert list(repository.questions("test")["question_id"]) == ["2"]
    assert not (tmp_path / "out-answers").exists()


def hidden_answers(out: Path) -> dict[str, list[int]]:
    [path] = Path(f"{out}-answers").glob("answers/*.parquet")
    return {row["question_id"]: row["answer"] for row in pq.read_table(path).to_pylist()}


def test_hidden_answers_go_to_a_private_folder(tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    write_tsv(source / "a.tsv", [gmai_row(1, "A"), gmai_row(2, ""), gmai_row(3, "")])
    write_tsv(source / "answers.tsv", [{"index": 2, "answer": "C"}, {"index": 3, "answer": "A,B"}])
    report = build("gmai-mmbench", source=source, out=out)

    # The user must learn where the hidden answers are.
    assert f"{out}-answers" in str(report)
    repository = open_repository(out)
    test = repository.questions("test")
    assert list(test["answer"]) == [[], []]
    assert list(test["question_type"]) == ["single", "multiple"]
    assert hidden_answers(out) == {"2": [2], "3": [0, 1]}

    # The public folder must not contain the manifest of the answers.
    for path in out.rglob("*"):
        assert not path.is_file() or b"answers_of" not in path.read_bytes()

    with pytest.raises(BadInput, match="not a dataset folder"):
        open_repository(tmp_path / "out-answers")

    # Row 1 has a public answer, so it is not a test question.
    write_tsv(source / "answers.tsv", [{"index": 1, "answer": "C"}])
    with pytest.raises(BadInput, match="no test question"):
        build("gmai-mmbench", source=source, out=out)

    assert hidden_answers(out) == {"2": [2], "3": [0, 1]}


def test_image_of_several_rows_is_stored_once(tmp_path):
    shared_image = grey_png(5)
    rows = [
        gmai_row(1, "A", image=shared_image),
        gmai_row(2, "B"),
        gmai_row(3, "C", image=shared_image),
        # This row refers to the image of row 2.
        gmai_row(4, "A") | {"image": "2"},
    ]
    write_tsv(tmp_path / "x.tsv", rows)
    repository = build_and_open("gmai-mmbench", source=tmp_path, out=tmp_path / "out")
    assert list(repository.questions("validation")["image_id"]) == ["1", "2", "1", "2"]
    assert len(repository.manifest["images"]) == 2
    images = {case.case_id: case.images for case in repository.cases("validation")}
    assert images["4"] == {"2": grey_png(2)}
    text = build_and_open("gmai-mmbench", source=tmp_path, out=tmp_path / "text", text_only=True)
    assert list(text.questions("validation")["image_id"]) == ["1", "2", "1", "2"]
    assert text.manifest["splits"] == repository.manifest["splits"]
    with pytest.raises(BadInput, match="text-only"):
        next(text.cases("validation"))


def test_a_custom_tsv_with_image_paths_is_any_set(tmp_path):
    source = tmp_path / "source"
    (source / "images").mkdir(parents=True)
    rows = [{**gmai_row(n, "A"), "image_path": f"images/{n}.png", "license": "CC BY 4.0"} for n in (1, 2)]
    for row in rows:
        del row["image"]
        (source / row["image_path"]).write_bytes(grey_png(row["index"]))

    write_tsv(source / "x_VAL.tsv", rows)
    repository = build_and_open("gmai-mmbench", name="own", source=source, out=tmp_path / "out")
    assert (repository.family, repository.splits) == ("vqa", ["validation"])
    assert [list(case.images.values()) for case in repository.cases("validation")] == [[grey_png(1)], [grey_png(2)]]
    assert set(repository.questions("validation")["image_license"]) == {"CC BY 4.0"}
    (source / "images" / "2.png").unlink()
    with pytest.raises(BadInput, match=r"1 of 2 images are missing.*2\.png"):
        build("gmai-mmbench", name="own", source=source, out=tmp_path / "out")


def probmed_rows(id, kind, image):
    base = {"id": id, "image_type": kind, "image": image, "question": "Is it?"}
    return [
        base | {"qa_type": "modality_gt", "answer": "yes"},
        base | {"qa_type": "modality_hallu", "answer": "No."},
    ]


def test_probmed_ids_may_restart_per_image_type(tmp_path):
    rows = [
        *probmed_rows(1, "brain_ct", "1.png"),
        # Id and file name are those of the brain CT before it.
        *probmed_rows(1, "chest_xray", "1.png"),
        *probmed_rows(2, "chest_xray", "2.png"),
    ]
    for n, name in enumerate(("brain_ct/1.png", "chest_xray/1.png", "chest_xray/2.png")):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(grey_png(n))

    (tmp_path / "probmed.json").write_text(json.dumps(rows))
    cases = {
        case.case_id: case.images
        for case in build_and_open("probmed", source=tmp_path, out=tmp_path / "out").cases("test")
    }
    assert list(cases) == ["brain_ct-1", "chest_xray-1", "chest_xray-2"]
    assert list(cases["chest_xray-1"].values()) == [grey_png(1)]


def test_image_of_another_folder_is_not_used(tmp_path):
    (tmp_path / "probmed.json").write_text(json.dumps(probmed_rows("a", "brain_ct", "brain_ct/1.png")))
    (tmp_path / "chest_xray").mkdir()
    (tmp_path / "chest_xray" / "1.png").write_bytes(grey_png(1))
    build(
        "probmed", source=tmp_path, out=tmp_path / "out"
    )  # the only image with this name, so it was moved rather than confused
    rows = [
        *probmed_rows("a", "brain_ct", "brain_ct/1.png"),
        # Now the only file belongs to this row, so the other row's image is missing.
        *probmed_rows("b", "chest_xray", "chest_xray/1.png"),
    ]
    (tmp_path / "probmed.json").write_text(json.dumps(rows))
    with pytest.raises(BadInput, match="1 of 2 images are missing"):
        build("probmed", source=tmp_path, out=tmp_path / "out")


def test_vqa_rad_pairs_layout(tmp_path):
    for n in range(2):
        (tmp_path / f"synpic{n}.jpg").write_bytes(grey_png(n))

    rows = [
        {
            "image": f"synpic{n // 2}.jpg",
            "question": f"Q{n}?",
            "gt_ans": "yes" if n % 2 == 0 else "no",
        }
        for n in range(4)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    questions = build_and_open("probmed-vqa-rad", source=tmp_path, out=tmp_path / "alone").questions("test")
    assert list(questions["adversarial"]) == [False, True, False, True]
    assert list(questions["answer"]) == [[0], [1], [0], [1]]
    assert questions["pair_id"].nunique() == 2

    # Reversed, each pair starts with its adversarial question.
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, reversed(rows))) + "\n")
    with pytest.raises(BadInput, match="rows alternate"):
        build("probmed-vqa-rad", source=tmp_path, out=tmp_path / "both")
