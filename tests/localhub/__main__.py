"""The loopback Hub in a process of its own: `python -m tests.localhub FOLDER [--port 8321] [--no-xet]`.

Prints its endpoint when it listens. Its state is in FOLDER; start it again there to go on.
"""

import argparse
from pathlib import Path

from .server import LocalHub


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no-xet", action="store_true")
    asked = parser.parse_args()
    hub = LocalHub(asked.folder, asked.port, xet=not asked.no_xet)
    print(hub.endpoint, flush=True)
    hub.serve()


main()
