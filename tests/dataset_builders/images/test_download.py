"""Test downloads from a local server that breaks off, refuses, or asks for patience."""

import json
import re

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.build import build, write_sources
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images import download
from tests.helpers import build_and_open
from tests.localhub.accounts import CURATOR
from tests.localhub.server import RESET

FILE_ADDRESS = "/datasets/ORG/images/resolve/main"
TEMPLATE = "/{pmcid}/{file_name}"


@pytest.fixture(scope="module")
def phantom_sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantom_sources")
    write_sources("mediconfusion", folder)
    return folder


@pytest.fixture
def server(local_hub, monkeypatch):
    """Return the address of a server of images, which is a repository of the loopback Hub."""
    monkeypatch.setattr(download, "REQUEST_INTERVAL_S", 0.0)
    HfApi(endpoint=local_hub.endpoint, token=CURATOR).create_repo("ORG/images", repo_type="dataset")
    return local_hub.endpoint + FILE_ADDRESS


@pytest.fixture
def source(phantom_sources, tmp_path, server, local_hub):
    """Create a MediConfusion source without images, whose image_dict.json points to the server's
    files.
    """
    folder = tmp_path / "source"
    folder.mkdir()
    pairs = json.loads((phantom_sources / "dataset.json").read_text())
    locations, files = {}, {}
    for pair in pairs.values():
        for n in (1, 2):
            local = pair[f"im_{n}_local"]
            article = f"PMC{local // 3}"  # three images to an article
            link = f"ftp://somewhere/pub/pmc/oa_package/aa/{article}.tar.gz"
            locations[pair[f"im_{n}"]] = {"local": local, "dlink": link, "file_name": f"fig{local}.png"}
            files[f"{article}/fig{local}.png"] = (phantom_sources / "images" / f"{local}.png").read_bytes()

    upload(local_hub, files)
    (folder / "dataset.json").write_text(json.dumps(pairs))
    (folder / "image_dict.json").write_text(json.dumps(locations))
    return folder


def upload(local_hub, files):
    operations = [CommitOperationAdd(path, data) for path, data in files.items()]
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_commit("ORG/images", operations, commit_message="Images", repo_type="dataset")
    local_hub.record.clear()


def requested(local_hub):
    """Return the paths of the requests for images."""
    return [request.path.removeprefix(FILE_ADDRESS) for request in local_hub.record.requests("GET", FILE_ADDRESS)]


def test_images_are_downloaded_once(source, server, local_hub, tmp_path):
    for _ in range(2):
        build("mediconfusion", source=source, images=[server + TEMPLATE], out=tmp_path / "out")
        assert len(requested(local_hub)) == len(set(requested(local_hub))) == 25
    repository = open_repository(tmp_path / "out")
    assert repository.partial is None
    assert len(repository.manifest["images"]) == 25
    assert "PMC10000, fig30001.png" in " ".join(repository.questions("test")["image_source"])


def test_busy_server_is_retried_but_missing_file_is_not(source, server, local_hub, tmp_path):
    # Three failures, so that the fourth request succeeds; a missing file is a permanent error.
    busy, lost = "/PMC10000/fig30001.png", "/PMC10000/fig30002.png"
    for status in (RESET, 503, 429):
        local_hub.faults.add(re.escape(busy), status, headers={"Retry-After": "0"})
    local_hub.faults.add(re.escape(lost), 404, times=99)
    options = {"source": source, "images": [server + TEMPLATE], "out": tmp_path / "out"}
    with pytest.raises(BadInput, match=r"1 of 25 images are missing.*could not be downloaded.*HTTP 404"):
        build("mediconfusion", **options)

    assert (requested(local_hub).count(busy), requested(local_hub).count(lost)) == (4, 1)
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out-images").glob("*.png"))) == 24
    local_hub.record.clear()
    build("mediconfusion", **options, allow_missing=True)

    # Images downloaded by the failed build are not requested again.
    assert requested(local_hub) == [lost]
    assert "1 of 25 images were missing" in open_repository(tmp_path / "out").partial


def test_next_template_is_tried(source, server, tmp_path):
    images = [server + "/gone/{file_name}", server + TEMPLATE]
    assert build_and_open("mediconfusion", source=source, images=images, out=tmp_path / "out").partial is None


def test_error_page_is_rejected(source, server, local_hub, tmp_path):
    upload(local_hub, {"PMC10000/fig30001.png": b"<html>Please log in</html>"})
    with pytest.raises(BadInput, match="not an image"):
        build("mediconfusion", source=source, images=[server + TEMPLATE], out=tmp_path / "out")


@pytest.mark.parametrize("template", ["/{nothing}/x.png", "/always-the-same.png", "/{file_name"])
def test_invalid_template_is_rejected(source, server, local_hub, tmp_path, template):
    with pytest.raises(BadInput, match="--images http"):
        build("mediconfusion", source=source, images=[server + template], out=tmp_path / "out")
    assert not requested(local_hub)
