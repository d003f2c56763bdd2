"""For tests that run the Hub in a process of its own: faults and the record of requests over HTTP, under /loopback/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.localhub.wire import Answer, Request

from .table import route

if TYPE_CHECKING:
    from tests.localhub.server import Hub


@route("POST", "/loopback/faults")
def add_fault(hub: Hub, request: Request) -> Answer:
    """The body is a Fault's fields as JSON."""
    hub.faults.add(**request.json())
    return Answer.json({})


@route("DELETE", "/loopback/faults")
def clear_faults(hub: Hub, request: Request) -> Answer:
    hub.faults.clear()
    return Answer.json({})


@route("GET", "/loopback/record")
def record(hub: Hub, request: Request) -> Answer:
    return Answer.json(hub.record.as_json())
