"""Test images of cases whose dataset is on the Hub: they are fetched from the loopback Hub in the
background, and only if their licences allow it.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from leaderboard_space.data.board import Board
from leaderboard_space.views import cases
from tests.leaderboard_space.stores import add_run, answers
from tests.localhub.accounts import CURATOR


@pytest.fixture(autouse=True)
def on_local_hub(local_hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CURATOR)


def state_licence(folder: Path, licence: str) -> None:
    """Mark phantoms as official, so that each image's licence decides, and set this licence."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"origin": "official"}))
    for path in (folder / "questions_text").glob("*.parquet"):
        table = pq.read_table(path)
        at = table.schema.get_field_index("image_license")
        column = pa.array([licence] * len(table), table.schema.field(at).type)
        pq.write_table(table.set_column(at, table.schema.field(at), column), path)


def shown(workdir: Path, licence: str) -> dict[str, int]:
    """Count what the page of cases contains at first, and once no image is pending."""
    folder = workdir / "mediconfusion"
    build("mediconfusion", out=folder)
    state_licence(folder, licence)
    publish(folder, "ORG/drawn", private=licence == "unknown")  # such images must not be redistributed
    shutil.rmtree(folder)
    repository = open_repository("ORG/drawn")
    question_table = repository.questions("test")
    add_run(
        workdir / "store", "mediconfusion", question_table, answers(question_table, 0.5), "One",
        repo="ORG/drawn", revision=repository.revision, origin="official",
    )  # fmt: skip
    board = Board(workdir / "store")
    page = cases.page(board, {})
    captions = {
        "waiting": page.count("data-waiting"),
        "at once": page.count("<img"),
        "questions": page.count('class="question"'),
    }
    for _ in range(200):
        page = cases.page(board, {})
        if "data-waiting" not in page:
            break
        time.sleep(0.1)
    return captions | {"images": page.count("<img"), "still waiting": page.count("data-waiting")}


@pytest.mark.parametrize(("licence", "images"), [("CC BY 4.0", 16), ("unknown", 0)])
def test_images_whose_licence_allows_it_come_from_the_hub_without_a_reader_waiting(
    tmp_path: Path, licence: str, images: int
) -> None:
    page = shown(tmp_path, licence)
    assert page["waiting"] == 8 or not images
    assert (page["at once"], page["questions"], page["images"], page["still waiting"]) == (0, 16, images, 0)
