"""Fixtures: `publishable`, every benchmark as its authors would release it, with drawn images;
`api`, a loopback Hub on which this process is signed in as the curator.
"""

import re

import pytest
from huggingface_hub import HfApi

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build, write_sources
from dataset_builders.source_files import ORIGIN_MARKER
from tests.localhub.accounts import CURATOR


@pytest.fixture(scope="session")
def publishable(tmp_path_factory):
    """Build every format under its official name, from drawn sources without the phantom marker.

    Phantoms may not take the official names.
    """
    root = tmp_path_factory.mktemp("publishable")
    for family in BENCHMARKS:
        source = root / "sources" / family
        write_sources(family, source)

        # Without the marker, the drawn source counts as a real one.
        (source / ORIGIN_MARKER).unlink()
        if family == "mediconfusion":
            _state_licences(source)
        build(family, source=source, out=root / family)

    return root


def _state_licences(source):
    """Give the drawn images ROCO names and licences that permit redistribution, in ROCO's
    own file.
    """
    path = source / "dataset.json"
    path.write_text(path.read_text().replace("PHANTOM_", "ROCO_"))
    ids = sorted(set(re.findall(r"ROCO_[0-9]+", path.read_text())))
    rows = [f"{name},PMC1_a.jpg,{('CC BY', 'CC BY-NC', 'CC BY-NC-ND')[n % 3]}" for n, name in enumerate(ids)]
    (source / "licences.txt").write_text("\n".join(["ROCO_ID,PMC_ID,CC", *rows]))


@pytest.fixture
def api(local_hub, monkeypatch):
    """Sign in as the curator, and return a client of the Hub."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    return HfApi(endpoint=local_hub.endpoint, token=CURATOR)
