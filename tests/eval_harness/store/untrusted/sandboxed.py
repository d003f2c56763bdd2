"""Functions that a sandbox must contain."""

import os
import subprocess
import sys
import time
from pathlib import Path

from dataset_builders.errors import Unavailable


def add(a, b):
    return a + b


def use_memory():
    blocks = []
    while True:
        blocks.append(bytearray(10_000_000))


def spin():
    while True:
        pass


def swallow_errors():
    """Treats every error as one of its own."""
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


def start_marking_process(path):
    """Start a process that writes a mark after a while, and leave it running."""
    subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(1.5); open({str(path)!r}, 'w')"])
    return 1


def exit_process():
    os._exit(3)


def refuse():
    raise Unavailable("come back later")


def raise_defect():
    return {}["nothing"]


def environment():
    return os.environ.get("MARK"), Path.cwd(), os.getpid()


def fixed_dataset(dataset, benchmark):
    """A `DatasetLookup` that always returns the same dataset."""
    return dataset
