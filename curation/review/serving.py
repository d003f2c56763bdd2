"""Serves a page that writes into a folder: one server to a folder, on this machine unless told otherwise. See also: who may open it
elsewhere (`access.py`)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from dataset_builders.errors import BadInput
from dataset_builders.files import lock

HERE = "127.0.0.1"


def serve_page(
    build: Callable[[], ASGIApp],
    folder: Path,
    task: str,
    doing: str,
    port: int,
    host: str = HERE,
    certificate: Path | None = None,
    key: Path | None = None,
) -> None:
    """Serve a page that writes into `folder`, whose lock `task` it holds; `certificate`, `key`: PEM files for HTTPS. Raises BadInput for
    a port in use, an address that is not this machine's, and a folder that another server has."""
    import uvicorn

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInput(f"--host {host} --port {port}: cannot be used ({error}). Give others.") from None
    with lock(folder, task):
        app = build()
        address = f"{'https' if certificate else 'http'}://{host}:{port}"
        print(f"{doing} on {address} (stop with Ctrl-C; everything shown as saved is saved)", flush=True)
        uvicorn.run(app, host=host, port=port, log_level="warning", ssl_certfile=certificate, ssl_keyfile=key)
