"""Xet over HTTP: short-lived tokens, xorbs and shards in, reconstructions out. The storage itself: storage/xet.py."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.localhub.storage.xet import XetStorage
from tests.localhub.wire import Answer, Refused, Request

from .files import in_range
from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub

HASH = "(?P<name>[0-9a-f]{64})"
LIFETIME = 3600


@route("GET", f"{API}/xet-(?P<purpose>read|write)-token/{REVISION}")
def token(hub: Hub, request: Request, kind: str, repo_id: str, purpose: str, revision: str) -> Answer:
    """With a pull request in the making the client does not know the revision and asks for one named None."""
    if purpose == "read":
        hub.readable(request, kind, repo_id)
    else:
        hub.changeable(request, kind, repo_id, revision, proposing="create_pr" in request.query)
    expires, cas = int(time.time()) + LIFETIME, f"{request.base}/xet"
    headers = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": purpose, "X-Xet-Token-Expiration": str(expires)}
    return Answer.json({"casUrl": cas, "accessToken": purpose, "exp": expires}, headers=headers)


def _storage(hub: Hub, request: Request, purpose: str = "read") -> XetStorage:
    if request.token not in ("write", purpose):
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
    if name not in storage.files:
        raise Refused(404, "No such file")
    document = storage.reconstruction(name, first, last, f"{request.base}/xet/data")
    if document is None:
        raise Refused(416, "Range Not Satisfiable")
    return Answer.json(document)


@route("GET", f"/xet/data/{HASH}")
def data(hub: Hub, request: Request, name: str) -> Answer:
    """The address in a reconstruction: needs no token, as the Hub's signed addresses do not."""
    if name not in hub.xet.xorbs:
        raise Refused(404, "No such xorb")
    return in_range(hub.xet.xorbs[name], {}, request.headers.get("Range"))
