"""Test publishing alongside other authors: their changes on the Hub stay, ours are updated."""

import random

import pytest

from dataset_builders.contents.data_files import (
    CARD_FILE,
    check_card_configs,
    config_entries,
    group_data_files,
)
from dataset_builders.errors import BadInput
from dataset_builders.hub.merge import RECORD_FILE, content_ids, merge_published
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.sampling import few

DATA_PATHS = [f"{config}/test-{n:05d}-of-00002.parquet" for config in ("questions", "cases") for n in range(2)]
OUR_PATHS = [*DATA_PATHS, "manifest.json", "LICENSE.md"]
OTHER_PATHS = [
    *OUR_PATHS,
    "questions/test-more.parquet",
    "NOTES.md",
    "own/train-00000-of-00001.parquet",
]


def apply_publish(stored, files):
    """Return the repository's files after a publish, with ids as on the Hub: Parquet in LFS, the
    rest in git.
    """
    ids = {path: content_ids(content)[0 if path.endswith(".parquet") else -1] for path, content in stored.items()}
    result = stored | merge_published("ORG/x", files, ids, stored.__getitem__).write
    return {path: content for path, content in result.items() if content is not None}


def random_folder(rng):
    chosen = [DATA_PATHS[0], *(path for path in OUR_PATHS[1:] if rng.random() < 0.8)]
    return {path: rng.choice([b"1", b"2"]) for path in chosen} | {CARD_FILE: rng.choice([b"# a\n", b"# b\n"])}


@pytest.mark.parametrize("seed", few(range(8), 2))
def test_merge_preserves_foreign_changes(seed):
    for number in range(50):
        check_random_history(random.Random(f"{seed} {number}"))


def check_random_history(rng):
    files = random_folder(rng)

    # Alternate random edits on the Hub with random publishes.
    stored = published = apply_publish({}, files)
    for _ in range(4):
        edits = {path: rng.choice([b"theirs", None]) for path in rng.sample(OTHER_PATHS, rng.randrange(3))}
        if edits_card := rng.random() < 0.4:
            edits[CARD_FILE] = stored[CARD_FILE] + b"theirs\n"
        stored = {path: content for path, content in (stored | edits).items() if content is not None}
        files = rng.choice([files, random_folder(rng)])
        changed = {path for path in OTHER_PATHS if stored.get(path) not in (published.get(path), files.get(path))}
        try:
            result = apply_publish(stored, files)
        except BadInput as refused:
            # A refusal must name a file that somebody changed.
            assert any(path in str(refused) for path in changed)
            return
        assert apply_publish(result, files) == result, "a second publish changes nothing"
        for path in OTHER_PATHS:
            if path in changed:
                assert result.get(path) in (stored[path],) if path in stored else (None, files.get(path)), path
            else:
                assert result.get(path) == files.get(path), path
        rows = {path: content_ids(content)[0] for path, content in result.items() if path.endswith(".parquet")}
        loaded = {path for path in rows if path.startswith(("questions/test-", "cases/test-"))}
        assert loaded <= files.keys() | changed & set(DATA_PATHS), "no rows of others among ours"
        stated = {config: splits for config, splits in group_data_files(rows).items() if config != "own"}
        check_card_configs(result[CARD_FILE].decode(), config_entries(stated, rows), CARD_FILE, "")

        # The body of an edited card must survive.
        edited = edits_card or b"theirs" in stored[CARD_FILE]
        assert result[CARD_FILE].endswith(stored[CARD_FILE].split(b"---\n")[-1] if edited else files[CARD_FILE])
        published = result | {path: published.get(path) for path in changed if result.get(path) == stored.get(path)}
        stored = result


def test_edits_on_the_hub_are_preserved(publishable, api):
    options = {"repo_id": "ORG/probmed", "repo_type": "dataset"}
    publish(publishable / "probmed", "ORG/probmed", private=True)

    # Edit the card as an author would in the web interface.
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

    # `push_to_hub` leaves old columns there (datasets#8608), and then our files would not load.
    assert "dtype: string" not in text and "config_name: theirs" in text
    assert not publish(publishable / "probmed", "ORG/probmed", private=True).committed
    api.upload_file(path_or_fileobj=stolen, path_in_repo="cases/test-more.parquet", **options)
    with pytest.raises(BadInput, match=r"nothing was published.* cases/test-more.parquet"):
        publish(publishable / "probmed", "ORG/probmed", private=True)

    assert RECORD_FILE in api.list_repo_files("ORG/probmed", repo_type="dataset")
