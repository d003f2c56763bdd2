"""Test downloads from a local server that truncates, refuses, or asks for patience."""

import http.server
import json
import threading
import time
from collections import Counter

import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images import download
from dataset_builders.phantom_sources import write_sources


class Server(http.server.ThreadingHTTPServer):
    """Serve `files` (path -> bytes) with `faults` (path -> what goes wrong, one entry per
    request).
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.asked, self.agents = {}, {}, Counter(), set()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.asked[self.path] += 1
        server.agents.add(self.headers["User-Agent"])
        faults = server.faults.get(self.path, [])
        fault_kind = faults.pop(0) if faults else None
        data = server.files.get(self.path)
        if isinstance(fault_kind, int) or data is None:
            self.send_response(fault_kind or 404)
            if fault_kind in (429, 503):
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return

        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:500] if fault_kind == "cut" else data)
        self.close_connection = fault_kind == "cut"

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "REQUEST_INTERVAL_S", 0.0)

    # Retries must not slow down the tests.
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture(scope="module")
def phantom_sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantom_sources")
    write_sources("mediconfusion", folder)
    return folder


@pytest.fixture
def source(phantom_sources, tmp_path, server):
    """Create a MediConfusion source without images, whose image_dict.json points to the server's
    files.
    """
    folder = tmp_path / "source"
    folder.mkdir()
    pairs = json.loads((phantom_sources / "dataset.json").read_text())
    locations = {}
    for pair in pairs.values():
        for n in (1, 2):
            local = pair[f"im_{n}_local"]
            article = f"PMC{local // 3}"  # three images to an article
            link = f"ftp://somewhere/pub/pmc/oa_package/aa/{article}.tar.gz"
            locations[pair[f"im_{n}"]] = {
                "local": local,
                "dlink": link,
                "file_name": f"fig{local}.png",
            }
            data = (phantom_sources / "images" / f"{local}.png").read_bytes()
            server.files[f"/{article}/fig{local}.png"] = data

    (folder / "dataset.json").write_text(json.dumps(pairs))
    (folder / "image_dict.json").write_text(json.dumps(locations))
    return folder


def test_images_are_downloaded_once(source, server, tmp_path):
    template = server.address + "/{pmcid}/{file_name}"
    build("mediconfusion", source=source, images=[template], out=tmp_path / "out")
    assert set(server.asked.values()) == {1}
    assert len(server.asked) == 25

    # Every request names this program as its sender.
    assert all("medprobe" in agent for agent in server.agents)
    repository = open_repository(tmp_path / "out")
    assert repository.partial is None
    assert len(repository.manifest["images"]) == 25
    assert "PMC10000, fig30001.png" in " ".join(repository.questions("test")["image_source"])
    build("mediconfusion", source=source, images=[template], out=tmp_path / "out")
    assert set(server.asked.values()) == {1}


def test_busy_server_is_retried_but_missing_file_is_not(source, server, tmp_path):
    paths = sorted(server.files)

    # Three failures, so that the fourth request succeeds.
    server.faults[paths[0]] = ["cut", 503, 429]

    # A missing file is a permanent error, so it is requested once.
    lost = paths[1]
    del server.files[lost]
    with pytest.raises(BadInput, match=r"1 of 25 images are missing.*could not be downloaded.*HTTP 404"):
        build(
            "mediconfusion",
            source=source,
            images=[server.address + "/{pmcid}/{file_name}"],
            out=tmp_path / "out",
        )

    assert (server.asked[paths[0]], server.asked[lost]) == (4, 1)
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out-images").glob("*.png"))) == 24
    earlier_requests = server.asked.copy()
    build(
        "mediconfusion",
        source=source,
        images=[server.address + "/{pmcid}/{file_name}"],
        out=tmp_path / "out",
        allow_missing=True,
    )

    # Images downloaded by the failed build are not requested again.
    assert {path for path in server.asked if server.asked[path] != earlier_requests[path]} == {lost}
    assert "1 of 25 images were missing" in open_repository(tmp_path / "out").partial


def test_next_template_is_tried(source, server, tmp_path):
    images = [server.address + "/gone/{file_name}", server.address + "/{pmcid}/{file_name}"]
    build("mediconfusion", source=source, images=images, out=tmp_path / "out")
    assert open_repository(tmp_path / "out").partial is None


def test_error_page_is_rejected(source, server, tmp_path):
    path = next(iter(server.files))
    server.files[path] = b"<html>Please log in</html>"
    with pytest.raises(BadInput, match="not an image"):
        build(
            "mediconfusion",
            source=source,
            images=[server.address + "/{pmcid}/{file_name}"],
            out=tmp_path / "out",
        )


@pytest.mark.parametrize("template", ["/{nothing}/x.png", "/always-the-same.png", "/{file_name"])
def test_invalid_template_is_rejected(source, server, tmp_path, template):
    with pytest.raises(BadInput, match="--images http"):
        build("mediconfusion", source=source, images=[server.address + template], out=tmp_path / "out")
    assert not server.asked
