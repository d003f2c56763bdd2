"""Publishing beside others: what they change or add on the Hub stays, what the last publish wrote is brought up to date."""

import random

import pytest
from huggingface_hub import HfApi

from dataset_builders.contents.data_files import CARD_FILE, check_card_configs, config_entries, group_data_files
from dataset_builders.errors import BadInput
from dataset_builders.hub.merge import RECORD_FILE, content_ids, merge_published
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.localhub.accounts import CURATOR
from tests.sampling import few

ROWS = [f"{config}/test-{n:05d}-of-00002.parquet" for config in ("questions", "cases") for n in range(2)]
OURS = [*ROWS, "manifest.json", "LICENSE.md"]
THEIRS = [*OURS, "questions/test-more.parquet", "NOTES.md", "own/train-00000-of-00001.parquet"]


def publish_to(there, files):
    """What the repository holds after a publish, as the Hub would: Parquet in LFS, the rest in git."""
    ids = {path: content_ids(content)[0 if path.endswith(".parquet") else -1] for path, content in there.items()}
    after = there | merge_published("ORG/x", files, ids, there.__getitem__).write
    return {path: content for path, content in after.items() if content is not None}


def a_folder(rng):
    chosen = [ROWS[0], *(path for path in OURS[1:] if rng.random() < 0.8)]
    return {path: rng.choice([b"1", b"2"]) for path in chosen} | {CARD_FILE: rng.choice([b"# a\n", b"# b\n"])}


@pytest.mark.parametrize("seed", few(range(20), 4))
def test_nothing_of_others_is_undone_and_the_rest_is_ours(seed):
    for number in range(50):
        several_publishes(random.Random(f"{seed} {number}"))


def several_publishes(rng):
    files = a_folder(rng)
    there = wrote = publish_to({}, files)
    for _ in range(4):
        others = {path: rng.choice([b"theirs", None]) for path in rng.sample(THEIRS, rng.randrange(3))}
        if edits_card := rng.random() < 0.4:
            others[CARD_FILE] = there[CARD_FILE] + b"theirs\n"
        there = {path: content for path, content in (there | others).items() if content is not None}
        files = rng.choice([files, a_folder(rng)])
        changed = {path for path in THEIRS if there.get(path) not in (wrote.get(path), files.get(path))}
        try:
            after = publish_to(there, files)
        except BadInput as refused:
            assert any(path in str(refused) for path in changed)
            return
        assert publish_to(after, files) == after, "a second publish changes nothing"
        for path in THEIRS:
            if path in changed:
                assert after.get(path) in (there[path],) if path in there else (None, files.get(path)), path
            else:
                assert after.get(path) == files.get(path), path
        rows = {path: content_ids(content)[0] for path, content in after.items() if path.endswith(".parquet")}
        loaded = {path for path in rows if path.startswith(("questions/test-", "cases/test-"))}
        assert loaded <= files.keys() | changed & set(ROWS), "no rows of others among ours"
        stated = {config: of for config, of in group_data_files(rows).items() if config != "own"}
        check_card_configs(after[CARD_FILE].decode(), config_entries(stated, rows), CARD_FILE, "")
        edited = edits_card or b"theirs" in there[CARD_FILE]
        assert after[CARD_FILE].endswith(there[CARD_FILE].split(b"---\n")[-1] if edited else files[CARD_FILE])
        wrote = after | {path: wrote.get(path) for path in changed if after.get(path) == there.get(path)}
        there = after


def test_what_others_edited_on_the_hub_stays(publishable, local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    options = {"repo_id": "ORG/probmed", "repo_type": "dataset"}
    publish(publishable / "probmed", "ORG/probmed", private=True)
    card = open_repository("ORG/probmed").folder / CARD_FILE
    info = (
        "dataset_info:\n- {config_name: questions, features: [{name: old, dtype: string}]}\n- {config_name: theirs}\n"
    )
    edited = card.read_text().replace("# ProbMed", "# Theirs").replace("configs:\n", info + "configs:\n", 1)
    edited += "A colleague's line.\n"
    api.upload_file(path_or_fileobj=edited.encode(), path_in_repo=CARD_FILE, **options)
    stolen = publishable / "halt-medvqa" / "questions_text" / "test-00000-of-00001.parquet"
    api.upload_file(path_or_fileobj=stolen, path_in_repo="questions_text/test-00000-of-00001.parquet", **options)
    with pytest.raises(BadInput, match="does not match the files of questions_text"):
        open_repository("ORG/probmed")
    again = publish(publishable / "probmed", "ORG/probmed", private=True)
    assert again.preserved == (
        "questions_text/test-00000-of-00001.parquet",
        f"{CARD_FILE} (but for its list of configs)",
    )
    assert "preserved" in str(again)
    opened = open_repository("ORG/probmed")
    text = (opened.folder / CARD_FILE).read_text()
    assert "# Theirs" in text and "A colleague's line." in text
    # `push_to_hub` leaves old columns there (datasets#8608), by which our files would not load.
    assert "dtype: string" not in text and "config_name: theirs" in text
    assert not publish(publishable / "probmed", "ORG/probmed", private=True).committed
    api.upload_file(path_or_fileobj=stolen, path_in_repo="cases/test-more.parquet", **options)
    with pytest.raises(BadInput, match=r"nothing was published.* cases/test-more.parquet"):
        publish(publishable / "probmed", "ORG/probmed", private=True)
    assert RECORD_FILE in api.list_repo_files("ORG/probmed", repo_type="dataset")
