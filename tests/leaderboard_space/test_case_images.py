"""Images of cases whose dataset lies on the Hub: fetched from the loopback Hub in the background, only where the terms allow."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.localhub.accounts import CURATOR

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, sys, time
from pathlib import Path
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from eval_harness.runs.planning.selection import select_questions
from leaderboard_space.data import case_images
from leaderboard_space.data.board import Board
from leaderboard_space.views import cases
from tests.leaderboard_space.stores import add_run, answers

place, licence = Path(sys.argv[1]), sys.argv[2]
folder = place / "mediconfusion"
build("mediconfusion", out=folder)
if licence != "phantom":  # the same files under the official name: then the licence of each image decides
    import pyarrow as pa, pyarrow.parquet as pq
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"origin": "official"}))
    for path in (folder / "questions_text").glob("*.parquet"):
        table = pq.read_table(path)
        at = table.schema.get_field_index("image_license")
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array([licence] * len(table), table.schema.field(at).type)), path)
publish(folder, "ORG/drawn", private=licence == "unknown")  # nobody may pass such images on, so the Hub holds them privately
asked = open_repository("ORG/drawn").questions("test")
repository = open_repository("ORG/drawn")
origin = "phantom" if licence == "phantom" else "official"
add_run(place / "store", "mediconfusion", asked, answers(asked, 0.5), "One", repo="ORG/drawn", revision=repository.revision, origin=origin)
import shutil
shutil.rmtree(folder)

board = Board(place / "store")
page = cases.page(board, {})
said = {"waiting": page.count("data-waiting"), "at once": page.count("<img"), "questions": page.count('class="question"')}
for _ in range(200):
    page = cases.page(board, {})
    if "data-waiting" not in page:
        break
    time.sleep(0.1)
print(json.dumps(said | {"images": page.count("<img"), "still waiting": page.count("data-waiting")}))
"""


def shown(hub: Any, place: Path, licence: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(place), licence],
        env={**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": CURATOR, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(place / "home")},
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def test_images_come_from_the_hub_without_a_reader_waiting(local_hub: Any, tmp_path: Path) -> None:
    said = shown(local_hub, tmp_path, "phantom")
    assert said == {"waiting": 8, "at once": 0, "questions": 16, "images": 16, "still waiting": 0}


def test_a_licence_that_allows_copies_shows_the_images(local_hub: Any, tmp_path: Path) -> None:
    assert shown(local_hub, tmp_path, "CC BY 4.0")["images"] == 16


def test_images_without_such_a_licence_stay_away(local_hub: Any, tmp_path: Path) -> None:
    said = shown(local_hub, tmp_path, "unknown")
    assert said["images"] == 0 and said["still waiting"] == 0 and said["questions"] == 16
