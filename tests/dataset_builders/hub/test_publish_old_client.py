"""Check that published repositories and folders load with `datasets` of 2024 and 2025, in cached
environments.
"""

import io
import json
import shutil

import pytest
from PIL import Image

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.environments import environment
from tests.localhub.accounts import CURATOR
from tests.localhub.clients import Stranger

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

OLD_CLIENT_CODE = """
import json
from datasets import __version__, get_dataset_config_names, load_dataset
assert __version__ == VERSION

def ids(rows):
    return [row.get("question_id") or row.get("case_id") for row in rows]

for name in NAMES:
    loaded = {config: load_dataset(name, config) for config in get_dataset_config_names(name)}
    for config in loaded:
        for split, rows in load_dataset(name, config, streaming=True).items():
            assert ids(rows) == ids(loaded[config][split]), (name, config, split)
    for rows in load_dataset(name).values():
        row = rows[0]
        assert row["image"].size[0] > 0
        assert isinstance(row["options"], list) and isinstance(row["answer"], list)
        assert rows.features["question_type"].names == ["single", "multiple", "yes_no"]
    case = next(iter(loaded["cases"].values()))[0]
    assert case["images"][0].size[0] > 0
    asked = case["questions"]
    assert isinstance(asked, list) and isinstance(asked[0], dict), type(asked)
    print(json.dumps({config: {split: ids(rows) for split, rows in each.items()} for config, each in loaded.items()}))
"""


REBUILD_CODE = """
import json, shutil
from datasets import load_dataset

for build in BUILDS:  # in one place, one after the other
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(build, PLACE)
    loaded = {config: load_dataset(PLACE, config) for config in ("questions", "cases", "questions_text")}
    text = {split: [[row["question"], row["answer"]] for row in rows] for split, rows in loaded["questions_text"].items()}
    sizes = [len(rows) for config in ("questions", "cases") for rows in loaded[config].values()]
    print(json.dumps([text, sizes, [row["image"].getpixel((0, 0)) for row in loaded["questions"]["test"]]]))
"""


@pytest.mark.exhaustive  # it installs the old libraries
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", OLD_CLIENTS)
def test_old_clients_load_every_benchmark(version, request, publishable, local_hub, monkeypatch, tmp_path):
    python = environment(request.config.cache, f"datasets-{version}", OLD_CLIENTS[version], with_ours=False)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    for family in BENCHMARKS:
        publish(publishable / family, f"ORG/{family}", private=True)

    stranger = Stranger(tmp_path, python, local_hub.endpoint, CURATOR)
    names = [f"ORG/{family}" for family in BENCHMARKS]
    output = stranger.run(f"VERSION, NAMES = {version!r}, {names!r}" + OLD_CLIENT_CODE, timeout=280).splitlines()
    for family, line in zip(BENCHMARKS, output[-len(names) :], strict=True):
        loaded, repository = json.loads(line), open_repository(publishable / family)
        for split in repository.splits:
            assert loaded["questions_text"][split] == list(repository.questions(split)["question_id"])

    # Old versions of `datasets` cached by folder name alone.
    builds = [
        publishable / "mediconfusion",
        *rebuilt(publishable / "sources" / "mediconfusion", tmp_path),
    ]
    code = f"BUILDS, PLACE = {[str(path) for path in builds]!r}, {str(tmp_path / 'set')!r}" + REBUILD_CODE
    loads = [json.loads(line) for line in stranger.run(code, timeout=280).splitlines()[-len(builds) :]]
    for folder, (text, sizes, pixels) in zip(builds, loads, strict=True):
        repository = open_repository(folder)
        rows = repository.questions("test")
        assert text["test"] == [[q, list(a)] for q, a in zip(rows["question"], rows["answer"], strict=True)]
        assert sizes == [len(rows), len(list(repository.cases("test")))]
        images = {name: data for case in repository.cases("test") for name, data in case.images.items()}
        expected_pixels = [Image.open(io.BytesIO(images[name])).getpixel((0, 0)) for name in rows["image_id"]]
        assert pixels == [list(pixel) if isinstance(pixel, tuple) else pixel for pixel in expected_pixels]

    assert len({json.dumps(load) for load in loads}) == len(builds)


def rebuilt(source, tmp_path):
    """Build the same set with one pair less, and with one picture inverted."""
    for change in ("pair", "picture"):
        copy = tmp_path / change
        shutil.copytree(source, copy)
        if change == "pair":
            entries = json.loads((copy / "dataset.json").read_text())
            (copy / "dataset.json").write_text(json.dumps(dict(list(entries.items())[1:])))
        else:
            path = sorted(path for path in copy.rglob("*") if path.suffix in (".png", ".jpg"))[0]
            Image.eval(Image.open(path), lambda value: 255 - value).save(path)
        yield build("mediconfusion", name="mediconfusion-2", source=copy, out=tmp_path / f"{change}-built").folder
