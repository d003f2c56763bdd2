"""`load_dataset("ORG/name")` as anybody runs it: a fresh process with its own HF_HOME, without this project, from the loopback Hub."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.small_repo import small_repo

pytestmark = pytest.mark.slow

LOAD = """
import hashlib, json, sys
from datasets import Image, get_dataset_config_names, load_dataset

def facts(name, config, **options):
    loaded, found = load_dataset(name, config, **options), {}
    for split, rows in loaded.items():
        images, ids = {}, []
        for row in rows:
            ids.append(row.get("question_id") or row.get("case_id") or row.get("keyword"))
            for place, image in zip(row.get("image_ids") or [row.get("image_id")], row.get("images") or [row.get("image")]):
                if image is not None:
                    images[place] = list(image.size)
        found[split] = {"rows": len(ids), "ids": ids, "images": images}
    return found
"""


@pytest.fixture(autouse=True)
def on_local_hub(local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)


def test_by_name_by_config_and_streamed(publishable, stranger):
    for format in BENCHMARKS:
        publish(publishable / format, f"ORG/{format}", tag="v1.0.0", private=format != "mediconfusion")
    code = f"""
for format in {BENCHMARKS!r}:
    name = "ORG/" + format
    whole = {{config: facts(name, config) for config in get_dataset_config_names(name)}}
    print(json.dumps([format, whole, facts(name, None), facts(name, "cases", streaming=True)]))
"""
    found = [json.loads(line) for line in stranger(CURATOR).run(LOAD + code).splitlines()]
    assert [format for format, *_ in found] == list(BENCHMARKS)
    for format, whole, default, streamed in found:
        ours = open_repository(publishable / format)
        assert {"questions", "cases", "questions_text"} <= whole.keys()
        assert default == whole["questions"]
        assert streamed == whole["cases"]
        for split in ours.splits:
            ids = list(ours.questions(split)["question_id"])
            assert sorted(whole["questions"][split]["ids"]) == sorted(ids)
            assert whole["questions_text"][split]["ids"] == ids
            assert whole["cases"][split]["images"] == whole["questions"][split]["images"]
        pictures = {name for split in whole["questions"].values() for name in split["images"]}
        assert pictures == set(ours.manifest["images"])


@pytest.mark.parametrize("xet", [False, True], ids=["lfs", "xet"])
def test_the_bytes_of_images_arrive_unchanged(publishable, stranger, local_hub, tmp_path, xet):
    """With Xet the upload runs in a process of its own too: hf_xet remembers under its HF_HOME what it sent to which address."""
    ours = open_repository(publishable / "mediconfusion")
    if xet:
        upload(publishable / "mediconfusion", "ORG/mediconfusion", local_hub, tmp_path)
    else:
        publish(publishable / "mediconfusion", "ORG/mediconfusion")
    code = """
rows = load_dataset("ORG/mediconfusion", split="test").cast_column("image", Image(decode=False))
print(json.dumps({row["image_id"]: hashlib.sha256(row["image"]["bytes"]).hexdigest() for row in rows}))
"""
    found = json.loads(stranger(xet=xet).run(LOAD + code).splitlines()[-1])
    assert found == {name: facts["sha256"] for name, facts in ours.manifest["images"].items()}
    through_xet = [asked for asked in local_hub.record.of("*", "^/xet/") if asked.status in (200, 206)]
    assert bool(through_xet) == xet
    if xet:
        assert local_hub.record.of("GET", "/xet/v1/reconstructions/") and local_hub.record.of("POST", "/xet/v1/xorbs/")
        streamed = "print(next(iter(load_dataset('ORG/mediconfusion', split='test', streaming=True)))['question_id'])"
        assert stranger(xet=True).run(LOAD + streamed).strip()
        assert json.loads(stranger().run(LOAD + code).splitlines()[-1]) == found, "and without Xet again"


def upload(folder, repo_id, hub, tmp_path):
    """`publish` in a process of its own, with Xet, from a folder of its own."""
    code = f"from dataset_builders.hub.publish import publish; print(publish({str(folder)!r}, {repo_id!r}))"
    home = {"HF_HOME": str(tmp_path / "uploader"), "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": CURATOR}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | home, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_tag_gives_the_version_it_names(tmp_path, stranger):
    publish(small_repo(tmp_path / "one", ["CC0"] * 2), "ORG/small", tag="v1.0.0")
    publish(small_repo(tmp_path / "two", ["CC0"] * 3), "ORG/small", tag="v2.0.0")
    code = """
for revision in ("v1.0.0", "v2.0.0", None):
    print(len(load_dataset("ORG/small", split="test", revision=revision)))
print(sum(1 for _ in load_dataset("ORG/small", "cases", split="test", revision="v1.0.0", streaming=True)))
"""
    assert stranger().run(LOAD + code).split() == ["2", "3", "3", "2"]


def test_a_private_set_is_for_its_owners(tmp_path, stranger):
    publish(small_repo(tmp_path / "one", ["unknown"]), "ORG/small", private=True)
    code = """
try:
    load_dataset("ORG/small")
except Exception as error:
    print(type(error).__name__)
else:
    print("loaded")
"""
    said = [stranger(token).run(LOAD + code).strip() for token in (READER, CURATOR)]
    assert said == ["DatasetNotFoundError", "loaded"]


def test_the_first_streamed_row_fetches_a_part_only(tmp_path, stranger, local_hub):
    folder = small_repo(tmp_path / "one", ["CC0"] * 300)
    publish(folder, "ORG/small")
    code = "print(next(iter(load_dataset('ORG/small', split='test', streaming=True)))['question'])"
    assert stranger().run(LOAD + code).strip() == "What does im-0 show?"
    assert any(asked.status == 206 for asked in local_hub.record.of("GET", "/resolve/.*parquet"))


@pytest.mark.sources
def test_the_authors_mediconfusion_without_images(sources, tmp_path, stranger):
    """Its texts may be passed on; the images of 28 have no stated licence, so those stay private."""
    build("mediconfusion", source=sources / "mediconfusion", out=tmp_path / "mediconfusion", text_only=True)
    publish(tmp_path / "mediconfusion", "ORG/mediconfusion", tag="v1.0.0")
    code = """
rows = load_dataset("ORG/mediconfusion", split="test", revision="v1.0.0")
print(json.dumps([len(rows), len(set(rows["case_id"])), "10013-1" in rows["question_id"]]))
"""
    assert json.loads(stranger().run(LOAD + code).splitlines()[-1]) == [352, 176, True]


def test_hashes_in_the_manifest_are_those_of_the_published_bytes(publishable):
    ours = open_repository(publishable / "mediconfusion")
    for case in ours.cases("test"):
        for name, content in case.images.items():
            assert hashlib.sha256(content).hexdigest() == ours.manifest["images"][name]["sha256"]


OPEN = """
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
try:
    repository = open_repository("medlab/secret")
    print(len(repository.questions(repository.splits[0])))
except BadInput as error:
    print("refused:", error)
"""


def test_what_was_cached_and_may_not_be_seen_any_more_is_refused_in_one_line(publishable, local_hub, tmp_path):
    publish(publishable / "halt-medvqa", "medlab/secret", private=True)

    def opened(**environment):
        given = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", **environment}
        done = subprocess.run(
            [sys.executable, "-c", OPEN], env=given, capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout.strip()

    assert opened(HF_TOKEN=CURATOR).isdigit()
    for refusal in (opened(HF_TOKEN=READER), opened(HF_TOKEN=CURATOR, HF_ENDPOINT="http://127.0.0.1:9")):
        assert refusal.startswith("refused: medlab/secret: ")
        assert len(refusal.splitlines()) == 1
