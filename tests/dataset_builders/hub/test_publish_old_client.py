"""Published repositories load with `datasets` of 2024, in a cached environment."""

import json

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.environments import environment
from tests.localhub.accounts import CURATOR
from tests.localhub.clients import Stranger

CLIENTS = {
    "2.18.0": (
        "datasets==2.18.0",
        "huggingface_hub==0.21.4",
        "pyarrow==15.0.2",
        "numpy==1.26.4",
        "pandas==2.2.1",
        "pillow==10.4.0",
        "fsspec==2024.2.0",
    ),
}

LOAD = """
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


@pytest.mark.exhaustive  # it installs the old libraries
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", CLIENTS)
def test_an_old_client_loads_every_benchmark(version, request, publishable, local_hub, monkeypatch, tmp_path):
    python = environment(request.config.cache, f"datasets-{version}", CLIENTS[version], with_ours=False)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    for family in BENCHMARKS:
        publish(publishable / family, f"ORG/{family}", private=True)
    stranger = Stranger(tmp_path, python, local_hub.endpoint, CURATOR)
    names = [f"ORG/{family}" for family in BENCHMARKS]
    said = stranger.run(f"VERSION, NAMES = {version!r}, {names!r}" + LOAD, timeout=280).splitlines()
    for family, line in zip(BENCHMARKS, said[-len(names) :], strict=True):
        found, ours = json.loads(line), open_repository(publishable / family)
        for split in ours.splits:
            assert found["questions_text"][split] == list(ours.questions(split)["question_id"])
