"""Functions that a sandbox has to bear."""

import os
import subprocess
import sys
import time
from pathlib import Path

from dataset_builders.errors import Unavailable


def add(one, two):
    return one + two


def memory():
    held = []
    while True:
        held.append(bytearray(10_000_000))


def spin():
    while True:
        pass


def swallow():
    """Takes every error for one of its own."""
    while True:
        try:
            spin()
        except Exception:
            continue


def wait_for(path):
    while not path.exists():
        time.sleep(0.02)


def sleep_in_a_child(mark=None):
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1000)"], check=True)


def marks(path):
    """Starts a process that writes a mark after a while, and leaves it running."""
    subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(1.5); open({str(path)!r}, 'w')"])
    return 1


def exits():
    os._exit(3)


def refuses():
    raise Unavailable("come back later")


def defect():
    return {}["nothing"]


def environment():
    return os.environ.get("MARK"), Path.cwd(), os.getpid()


def the_dataset(dataset, benchmark):
    """A `Find` that always finds the same one."""
    return dataset
