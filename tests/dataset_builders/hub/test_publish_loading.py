"""Run `load_dataset("ORG/name")` as a user would: a fresh process without this project, with its
own HF_HOME; also with `datasets` of 2024 and 2025.
"""

import json
import shutil

import pytest

from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.environments import environment
from tests.helpers import build_and_open, edit_json
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.fixture import Stranger
from tests.localhub.small_repo import small_repo
from tests.sampling import few

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("api")]

OLD_CLIENTS = {
    "2.18.0": (
        "datasets==2.18.0",
        "huggingface_hub==0.21.4",
        "pyarrow==15.0.2",
        "numpy==1.26.4",
        "pandas==2.2.1",
        "pillow==10.4.0",
        "fsspec==2024.2.0",
    ),
    "3.6.0": (
        "datasets==3.6.0",
        "huggingface_hub==0.31.4",
        "pyarrow==20.0.0",
        "numpy==2.2.6",
        "pandas==2.2.3",
        "pillow==11.2.1",
    ),
}

LOAD_CODE = """
import hashlib, json, sys
from datasets import Image, get_dataset_config_names, load_dataset

def facts(name, config, **options):
    loaded, found = load_dataset(name, config, **options), {}
    for split, rows in loaded.items():
        images, ids = {}, []
        for row in rows:
            ids.append(row.get("question_id") or row.get("case_id") or row.get("keyword"))
            for name, image in zip(row.get("image_ids") or [row.get("image_id")], row.get("images") or [row.get("image")]):
                if image is not None:
                    images[name] = list(image.size)
        found[split] = {"rows": len(ids), "ids": ids, "images": images}
    return found
"""


def check_loading(publishable, client, families):
    """Publish these datasets, load every config of each in the client, and compare the rows."""
    for family in families:
        publish(publishable / family, f"ORG/{family}", tag="v1.0.0", private=family != "mediconfusion")

    code = f"""
for family in {families!r}:
    name = "ORG/" + family
    whole = {{config: facts(name, config) for config in get_dataset_config_names(name)}}
    case = load_dataset(name, "cases")["test" if family != "gmai-mmbench" else "validation"][0]
    assert isinstance(case["questions"], list) and isinstance(case["questions"][0]["options"], list)
    print(json.dumps([family, whole, facts(name, None), facts(name, "cases", streaming=True)]))
"""
    results = [json.loads(line) for line in client.run(LOAD_CODE + code, timeout=280).splitlines()]
    assert [family for family, *_ in results] == families
    for family, loaded, default, streamed in results:
        repository = open_repository(publishable / family)
        assert {"questions", "cases", "questions_text"} <= loaded.keys()

        # `questions` is the default config.
        assert default == loaded["questions"]
        assert streamed == loaded["cases"]
        for split in repository.splits:
            ids = list(repository.questions(split)["question_id"])
            assert sorted(loaded["questions"][split]["ids"]) == sorted(ids)
            assert loaded["questions_text"][split]["ids"] == ids
            assert loaded["cases"][split]["images"] == loaded["questions"][split]["images"]
        pictures = {name for split in loaded["questions"].values() for name in split["images"]}
        assert pictures == set(repository.manifest["images"])


@pytest.mark.parametrize("families", few([["mediconfusion"], ["probmed", "gmai-mmbench"]]))
def test_loading_by_config_and_streaming(publishable, stranger, families):
    check_loading(publishable, stranger(CURATOR), families)


@pytest.mark.exhaustive  # it installs the old libraries
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", OLD_CLIENTS)
def test_old_clients_load_the_same(version, request, publishable, local_hub, tmp_path):
    python = environment(request.config.cache, f"datasets-{version}", OLD_CLIENTS[version], with_ours=False)
    client = Stranger(tmp_path, python, local_hub.endpoint, CURATOR)
    check_loading(publishable, client, ["mediconfusion", "probmed", "gmai-mmbench"])

    # Old versions of `datasets` cached by folder name alone: build again in the same place.
    source, place = shutil.copytree(publishable / "sources" / "mediconfusion", tmp_path / "source"), tmp_path / "set"
    code = f"import datasets, json\nrows = datasets.load_dataset({str(place)!r})['test']\n"
    code += f"assert datasets.__version__ == {version!r}\nprint(json.dumps([rows['question_id'], rows['answer']]))"
    for _ in range(2):
        edit_json(source / "dataset.json", lambda pairs: pairs.popitem())
        rows = build_and_open("mediconfusion", source=source, out=place).questions("test")
        assert json.loads(client.run(code)) == [list(rows["question_id"]), list(rows["answer"])]


HASH_CODE = """
def hashes(**options):
    rows = load_dataset("ORG/mediconfusion", split="test", **options).cast_column("image", Image(decode=False))
    return {row["image_id"]: hashlib.sha256(row["image"]["bytes"]).hexdigest() for row in rows}
"""


@pytest.mark.exhaustive
def test_bytes_tags_permissions_and_partial_reads(publishable, tmp_path, stranger, local_hub):
    """Image bytes arrive unchanged, a tag selects its version, a private set needs its owner's
    token, and streaming the first row of a large set fetches only part of it.
    """
    publish(publishable / "mediconfusion", "ORG/mediconfusion")
    publish(small_repo(tmp_path / "one", ["CC0"] * 2), "ORG/small", tag="v1.0.0")
    publish(small_repo(tmp_path / "two", ["CC0"] * 3), "ORG/small", tag="v2.0.0")
    publish(small_repo(tmp_path / "secret", ["unknown"]), "ORG/secret", private=True)
    publish(small_repo(tmp_path / "large", ["CC0"] * 300), "ORG/large")
    code = f"""
versions = [len(load_dataset("ORG/small", split="test", revision=name)) for name in ("v1.0.0", "v2.0.0", None)]
streamed = load_dataset("ORG/small", "cases", split="test", revision="v1.0.0", streaming=True)
private = []
for token in ({READER!r}, {CURATOR!r}):
    try:
        private.append(len(load_dataset("ORG/secret", split="test", token=token)))
    except Exception as error:
        private.append(type(error).__name__)
first = next(iter(load_dataset("ORG/large", split="test", streaming=True)))["question"]
print(json.dumps([hashes(), versions, sum(1 for _ in streamed), private, first]))
"""
    loaded_hashes, versions, streamed, private, first_question = json.loads(
        stranger().run(LOAD_CODE + HASH_CODE + code).splitlines()[-1]
    )
    images = open_repository(publishable / "mediconfusion").manifest["images"]
    assert loaded_hashes == {name: facts["sha256"] for name, facts in images.items()}
    assert (versions, streamed) == ([2, 3, 3], 2)

    # The Hub does not reveal private sets to others.
    assert private == ["DatasetNotFoundError", 1]
    assert first_question == "What does im-0 show?"

    # 206: only a part of the file was requested.
    assert any(request.status == 206 for request in local_hub.record.requests("GET", "/ORG/large/resolve/.*parquet"))


def test_cached_repository_is_refused_without_access(publishable, monkeypatch):
    publish(publishable / "halt-medvqa", "medlab/secret", private=True)
    repository = open_repository("medlab/secret")
    rows = repository.to_datasets()["test"]
    assert (
        list(rows["question_id"]) == list(repository.questions("test")["question_id"]) and rows[0]["image"].size[0] > 0
    )
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(BadInput, match=r"^medlab/secret: ") as refused:
        open_repository("medlab/secret")

    monkeypatch.setenv("HF_TOKEN", CURATOR)

    # Nothing listens on the discard port.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadInput, match=r"^medlab/secret: ") as away:
        open_repository("medlab/secret")

    assert all(len(str(error.value).splitlines()) == 1 for error in (refused, away))
