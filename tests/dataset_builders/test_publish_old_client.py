"""What we publish loads with `datasets` of March 2024 too, in an environment of its own (made once, kept in the pytest cache)."""

import json
import re
import subprocess
import sys
import venv

import huggingface_hub.constants
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from dataset_builders.sources.files import ORIGIN_MARKER
from dataset_builders.sources.phantoms import write_sources
from tests.localhub.accounts import CURATOR
from tests.localhub.clients import Stranger

OLD = (
    "datasets==2.18.0",
    "huggingface_hub==0.21.4",
    "pyarrow==15.0.2",
    "numpy==1.26.4",
    "pandas==2.2.1",
    "pillow==10.4.0",
    "fsspec==2024.2.0",
)
NO_INDEX = re.compile(
    r"connection|temporary failure|timed out|proxy|network|no matching distribution|ssl|resolve", re.IGNORECASE
)

LOAD = """
import json
from datasets import __version__, get_dataset_config_names, load_dataset
assert __version__ == "2.18.0"
found = {}
for config in get_dataset_config_names(NAME):
    loaded = load_dataset(NAME, config)
    found[config] = {split: [row.get("question_id") or row.get("case_id") for row in rows] for split, rows in loaded.items()}
    streamed = load_dataset(NAME, config, streaming=True)
    for split, rows in streamed.items():
        again = [row.get("question_id") or row.get("case_id") for row in rows]
        assert again == found[config][split], (config, split)
rows = load_dataset(NAME)
for split in rows:
    row = rows[split][0]
    assert row["image"].size[0] > 0
    assert isinstance(row["options"], list) and isinstance(row["answer"], list)
    assert rows[split].features["question_type"].names == ["single", "multiple", "yes_no"]
case = next(iter(load_dataset(NAME, "cases").values()))[0]
assert case["images"][0].size[0] > 0
asked = case["questions"]
assert isinstance(asked, list) and isinstance(asked[0], dict), type(asked)
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def old_python(request):
    folder = request.config.cache.mkdir("old-datasets") / f"{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != list(OLD):
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", *OLD]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        if done.returncode and NO_INDEX.search(done.stderr):
            pytest.skip(
                f"the package index cannot be reached, so datasets 2.18 is not tested: {done.stderr.strip()[-200:]}"
            )
        assert done.returncode == 0, done.stderr
        stamp.write_text(json.dumps(OLD))
    return python


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", BENCHMARKS)
def test_an_old_client_loads_it(old_python, local_hub, monkeypatch, tmp_path, format):
    monkeypatch.setenv("HF_ENDPOINT", local_hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    write_sources(format, tmp_path / "source")
    (tmp_path / "source" / ORIGIN_MARKER).unlink()
    build(format, source=tmp_path / "source", out=tmp_path / format)
    publish(tmp_path / format, f"ORG/{format}", private=True)
    (tmp_path / "stranger").mkdir()
    stranger = Stranger(tmp_path / "stranger", old_python, local_hub.endpoint, CURATOR)
    found = json.loads(stranger.run(f"NAME = 'ORG/{format}'" + LOAD, timeout=280).splitlines()[-1])
    ours = open_repository(tmp_path / format)
    for split in ours.splits:
        assert found["questions_text"][split] == list(ours.questions(split)["question_id"])
