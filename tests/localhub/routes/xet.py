"""Xet over HTTP: short-lived tokens, xorbs and shards in, reconstructions out. The storage itself: storage/xet.py."""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING

from tests.localhub.storage.xet import XetStorage
from tests.localhub.wire import Answer, Refused, Request

from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub

HASH = "(?P<name>[0-9a-f]{64})"
LIFETIME = 3600


@route("GET", f"{API}/xet-(?P<purpose>read|write)-token/{REVISION}")
def token(hub: Hub, request: Request, kind: str, repo_id: str, purpose: str, revision: str) -> Answer:
    """With a pull request in the making the client does not know the revision and asks for one named None."""
    _storage(hub)
    if purpose == "read":
        hub.readable(request, kind, repo_id)
    else:
        hub.changeable(request, kind, repo_id, revision, proposing="create_pr" in request.query)
    expires = int(time.time()) + LIFETIME
    access = f"{purpose}.{expires}.{_seal(purpose, str(expires))}"
    cas = f"{request.base}/xet"
    headers = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": access, "X-Xet-Token-Expiration": str(expires)}
    return Answer.json({"casUrl": cas, "accessToken": access, "exp": expires}, headers=headers)


def _seal(purpose: str, expires: str) -> str:
    """Keeps a test honest about sending the right token; it hides nothing."""
    return hashlib.sha256(f"loopback {purpose} {expires}".encode()).hexdigest()


def _storage(hub: Hub, request: Request | None = None, purpose: str = "read") -> XetStorage:
    if hub.xet is None:
        raise Refused(404, "This loopback Hub has no Xet storage")
    if request is not None:
        given, expires, seal = ((request.token or "") + "..").split(".")[:3]
        fits = given in ("write", purpose)
        if not fits or seal != _seal(given, expires) or int(expires) < time.time():
            raise Refused(401, f"No valid Xet token to {purpose}")
    return hub.xet


@route("POST", f"/xet/v1/xorbs/[^/]+/{HASH}")
def put_xorb(hub: Hub, request: Request, name: str) -> Answer:
    storage = _storage(hub, request, "write")
    try:
        return Answer.json({"was_inserted": storage.put_xorb(name, request.body())})
    except ValueError as error:
        raise Refused(400, str(error)) from None


@route("POST", "/xet/(?:v1/)?shards")
def put_shard(hub: Hub, request: Request) -> Answer:
    _storage(hub, request, "write").put_shard(request.body())
    return Answer.json({"result": 1})


@route("GET", f"/xet/v1/reconstructions/{HASH}")
def reconstruction(hub: Hub, request: Request, name: str) -> Answer:
    storage = _storage(hub, request)
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", "bytes=0-"))
    first, last = (int(found[1]), int(found[2]) if found[2] else None) if found else (0, None)
    if storage.file(name) is None:
        raise Refused(404, "No such file")
    document = storage.reconstruction(name, first, last, f"{request.base}/xet/data")
    if document is None:
        raise Refused(416, "Range Not Satisfiable")
    return Answer.json(document)


@route("GET", f"/xet/data/{HASH}")
def data(hub: Hub, request: Request, name: str) -> Answer:
    """The address in a reconstruction: needs no token, as the Hub's signed addresses do not."""
    from .files import byte_range

    path = _storage(hub).xorb_path(name)
    if not path.exists():
        raise Refused(404, "No such xorb")
    size = path.stat().st_size
    if "Range" not in request.headers:
        return Answer(200, file=(path, 0, size))
    first, last = byte_range(request.headers["Range"], size)
    return Answer(206, {"Content-Range": f"bytes {first}-{last}/{size}"}, file=(path, first, last - first + 1))
