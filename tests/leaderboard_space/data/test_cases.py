"""Test the page Cases: with more results than it shows, the answers that it reads, and images whose
dataset is on the Hub, which are fetched from the loopback Hub in the background, and only if their
licences allow it.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.run_files import read_readings
from eval_harness.records.result import read_result
from leaderboard_space.data import cases as case_data
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import read_case_answers
from leaderboard_space.data.sections import Entry
from leaderboard_space.views import cases, model as model_page
from leaderboard_space.views.parts import measured_sections, set_name
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.stores import add_run, answers, change, questions
from tests.localhub.accounts import CURATOR

FORMAT = "halt-medvqa"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("many")
    question_table = questions(FORMAT, 20)
    for number in range(8):
        add_run(store, FORMAT, question_table, answers(question_table, number / 8, seed=number), f"Model {number}")
    return store


def test_of_many_results_the_best_are_shown_and_the_page_says_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "MAX_RUNS", 5)
    board = Board(store)
    page = cases.page(board, {})
    assert "Of 8 results the best 5 are shown." in page
    articles = page[page.index("<article") :]
    assert "Model 7" in articles and "Model 0" not in articles
    rows = json.loads(cases.file(board, {"as": "json"})["text"])
    assert {row["model"] for row in rows} == {f"Model {number}" for number in range(3, 8)} and len(rows) == 5 * 20
    # labels that some questions lack
    assert "None" not in page and not any("None" in row["labels"] for row in rows)
    monkeypatch.setattr(case_data, "MAX_RUNS", 8)
    assert "are shown" not in cases.page(board, {})


def test_a_set_that_cannot_be_read_says_so(store: Path, tmp_path: Path) -> None:
    store_path = tmp_path / "both"
    shutil.copytree(store, store_path)
    lost = questions("mediconfusion", 12)
    add_run(store_path, "mediconfusion", lost, answers(lost, 0.5), "Lost")
    (store_path / "questions" / f"{fingerprint_questions(lost)}.parquet").unlink()
    board = Board(store_path)
    (key,) = {set_name(section) for section in measured_sections(board) if section.family == "mediconfusion"}
    assert cases.UNREADABLE in cases.page(board, {"set": key})


def test_the_first_sample_of_each_question_is_read(store: Path, tmp_path: Path) -> None:
    source = next(store.glob("results/*/Model-7/*"))
    folder = Path(shutil.copytree(source, tmp_path / "result"))
    entry = Entry("Model-7", read_result(folder / "result.json"), folder, derived=folder)
    readings = read_readings(folder).set_index("question_id")
    question_ids = list(readings.index[3:6])
    expected = {
        name: (list(readings.loc[name, "choice"]), readings.loc[name, "status"], readings.loc[name, "response"] or "")
        for name in question_ids
    }
    assert read_case_answers(entry, [*question_ids, "not there"]) == expected
    for name in ("answers.parquet", "readings.parquet"):
        table = pq.read_table(folder / name).to_pandas()
        again = table.assign(sample=1, **({"status": "refused"} if "status" in table else {}))
        two_samples = pa.Table.from_pandas(
            pd.concat([again, table]), schema=pq.read_schema(folder / name), preserve_index=False
        )
        pq.write_table(two_samples, folder / name)
    assert read_case_answers(entry, question_ids) == expected
    (folder / "readings.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match="cannot be read"):
        read_case_answers(entry, question_ids)


def test_what_was_said_stands_where_it_names_no_option(tmp_path: Path) -> None:
    question_table = questions(FORMAT, 3)
    answer_table = answers(question_table, 1.0)
    answer_table.at[0, "response"], answer_table.at[0, "status"] = "I <b>cannot</b>\n say " + "so " * 100, "refused"
    answer_table.at[0, "choice"] = []
    add_run(tmp_path, FORMAT, question_table, answer_table, "Shy")
    board = Board(tmp_path)
    page = plain(cases.page(board, {}))
    assert "Named no option: Shy (refused: “I <b>cannot</b> say so so" in page and "…”)" in page
    rows = json.loads(cases.file(board, {"as": "json"})["text"])
    assert rows[0]["response"] == answer_table.at[0, "response"] and rows[0]["status"] == "refused"


def test_filters_list_what_they_say(tmp_path: Path) -> None:
    """Wrong first, wrong by a given model, and a label: each list contains the cases that the raw
    answers give, recounted here.
    """
    family = "mediconfusion"
    question_table = questions(family, 30)
    runs = {f"Model {number}": answers(question_table, 0.2 + 0.2 * number, seed=number) for number in range(4)}
    for model, answer_table in runs.items():
        add_run(tmp_path, family, question_table, answer_table, model)
    add_run(tmp_path, family, question_table, answers(question_table, 1.0), "baseline: oracle", "baseline")
    board = Board(tmp_path)
    key = dict(zip(question_table["question_id"], question_table["answer"], strict=True))
    case_of = dict(zip(question_table["question_id"], question_table["case_id"], strict=True))
    right = pd.DataFrame(
        {
            model: {
                pair: all(list(c) == key[q] for q, c in zip(part["question_id"], part["choice"], strict=True))
                for pair, part in answer_table.groupby(answer_table["question_id"].map(case_of))
            }
            for model, answer_table in runs.items()
        }
    )
    share = right.mean(axis=1)

    def listed(**request: str) -> set[str]:
        rows = json.loads(cases.file(board, {"as": "json", **request})["text"])
        return {row["case_id"] for row in rows}

    wrong_first = [row["case_id"] for row in json.loads(cases.file(board, {"as": "json", "order": "wrong"})["text"])]
    assert list(share[wrong_first]) == sorted(share[wrong_first])
    assert listed(model="Model 1") == set(right.index[~right["Model 1"]])
    spinal = {
        case_of[q]
        for q, labels in zip(question_table["question_id"], question_table["categories"], strict=True)
        if "Spinal" in labels
    }
    assert listed(label="category:Spinal") == spinal
    assert listed(label="category:Spinal", model="Model 1") == spinal & set(right.index[~right["Model 1"]])
    for typed_text in ("Category: Spinal", " category: SPINAL "):
        assert listed(label=typed_text) == spinal
    page = cases.page(board, {"model": "nobody", "label": "Elbow"})
    assert "No result named" in page
    assert "This set has no label &#x27;Elbow&#x27;" in page and '<select data-name="label"' not in page
    link = "http://x/#/cases?label=Spinal"
    cited = cases.file(board, {"as": "cite", "label": "Spinal", "order": "wrong", "link": link})["text"]
    assert "label Spinal; order wrong" in cited and f"url = {{{link}}}" in cited and "urldate = {2" in cited


def test_who_is_right_in_one_sample_of_several_has_not_scored_a_case_in_full(tmp_path: Path) -> None:
    question_table = questions(FORMAT, 20)
    right, wrong = (
        answers(question_table, 1.0).assign(choice=question_table["answer"].map(turned))
        for turned in (list, lambda key: [1 - key[0] % 2])
    )
    folder = add_run(tmp_path, FORMAT, question_table, pd.concat([right, wrong.assign(sample=1)]), "Model")
    change(folder, lambda result: result["method"].update(samples=2))
    board = Board(tmp_path)
    assert "0 of 1 result scored this case in full, 1 in part" in plain(
        cases.page(board, {"id": question_table["case_id"][0]})
    )
    page = plain(cases.page(board, {}))
    assert "20 cases." in page and "Of results with several samples per question, the first is shown." in page
    assert "Nothing, by" not in model_page.page(board, {"id": "Model"})


def test_one_case_has_its_neighbours_and_a_tally(tmp_path: Path) -> None:
    family = "mediconfusion"
    question_table = questions(family, 30)
    add_run(tmp_path, family, question_table, answers(question_table, 1.0), "All right")
    add_run(tmp_path, family, question_table, answers(question_table, 0.0, seed=5), "Guesser")
    board = Board(tmp_path)
    page = cases.page(board, {"id": "7"})
    shared = {
        row.case_id
        for row in question_table.itertuples()
        if row.image_id in set(question_table[question_table["case_id"] == "7"]["image_id"])
    }
    assert shared == {"6", "7"}
    assert "Cases that share an image with it:" in page and ">case 6</a>" in page
    assert "Before: case 6" in page and "Next: case 8" in page and page.count("<article") == 1
    assert "of 2 results scored this case in full" in page
    assert "is not in this set" in cases.page(board, {"id": "<b>"})
    page_of_one = cases.page(board, {"id": "7", "first": "All right", "second": "nobody"})
    assert "All right" in page_of_one and "Guesser" not in page_of_one


def state_licence(folder: Path, licence: str) -> None:
    """Mark phantoms as official, so that each image's licence decides, and set this licence."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"origin": "official"}))
    for path in (folder / "questions_text").glob("*.parquet"):
        table = pq.read_table(path)
        at = table.schema.get_field_index("image_license")
        column = pa.array([licence] * len(table), table.schema.field(at).type)
        pq.write_table(table.set_column(at, table.schema.field(at), column), path)


@pytest.mark.parametrize(("licence", "images"), [("CC BY 4.0", 16), ("unknown", 0)])
def test_images_whose_licence_allows_it_come_from_the_hub_without_a_reader_waiting(
    local_hub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, licence: str, images: int
) -> None:
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    folder = tmp_path / "mediconfusion"
    build("mediconfusion", out=folder)
    state_licence(folder, licence)
    publish(folder, "ORG/drawn", private=licence == "unknown")  # such images must not be redistributed
    shutil.rmtree(folder)
    repository = open_repository("ORG/drawn")
    question_table = repository.questions("test")
    add_run(
        tmp_path / "store", "mediconfusion", question_table, answers(question_table, 0.5), "One",
        repo="ORG/drawn", revision=repository.revision, origin="official",
    )  # fmt: skip
    board = Board(tmp_path / "store")
    first_page = page = cases.page(board, {})
    assert first_page.count("data-waiting") == 8 or not images
    assert "<img" not in first_page and first_page.count('class="question"') == 16
    deadline = time.monotonic() + 20
    while "data-waiting" in page and time.monotonic() < deadline:
        time.sleep(0.1)
        page = cases.page(board, {})
    assert (page.count("<img"), page.count("data-waiting")) == (images, 0)
