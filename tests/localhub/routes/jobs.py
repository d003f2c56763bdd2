"""Jobs: what `hf jobs run` sends is kept in `hub.jobs`, and nothing is started; a test runs the command itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.localhub.accounts import may_write
from tests.localhub.wire import Answer, Refused, Request

from .table import route

if TYPE_CHECKING:
    from tests.localhub.server import Hub


@route("POST", "/api/jobs/(?P<namespace>[^/]+)")
def run(hub: Hub, request: Request, namespace: str) -> Answer:
    if not may_write(hub.token(request), namespace):
        raise Refused(403, f"You may not run jobs in {namespace}")
    job = request.json()
    hub.jobs.append(job)
    owner = {"id": namespace, "name": namespace, "type": "user"}
    shown = {key: value for key, value in job.items() if key != "secrets"}
    return Answer.json(shown | {"id": f"{len(hub.jobs):024x}", "owner": owner, "status": {"stage": "SCHEDULING"}})
