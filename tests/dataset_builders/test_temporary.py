"""Check that a process removes the leftovers of killed processes, but not those of running ones."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_builders.build import replace_folder
from dataset_builders.files import remove_abandoned_folders, replace_file, temporary_folder

HOLDER_CODE = """
import sys, time
from pathlib import Path
from dataset_builders.files import temporary_folder
with temporary_folder(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "half").write_text("x")
    print(folder.name, flush=True)
    time.sleep(600)
"""


def start_holder(parent, prefix):
    """Start a process that holds a temporary folder; return it and the folder's name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER_CODE, str(parent), prefix], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_only_abandoned_folders_are_removed(tmp_path):
    prefix = ".data."
    (tmp_path / ".data.backup").mkdir()  # not a temporary folder of ours
    (killed, dead), (living, alive) = start_holder(tmp_path, prefix), start_holder(tmp_path, prefix)
    try:
        # SIGKILL leaves no chance to clean up.
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (tmp_path / dead / "half").exists()
        with temporary_folder(tmp_path, prefix) as own_folder:
            assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
                own_folder.name,
                alive,
                ".data.backup",
            }
        assert {path.name for path in tmp_path.iterdir()} == {
            alive,
            f"{alive}.lock",
            ".data.backup",
        }
    finally:
        living.kill()
        living.wait()

    remove_abandoned_folders(tmp_path, prefix)
    assert [path.name for path in tmp_path.iterdir()] == [".data.backup"]


def test_threads_may_replace_the_same_file(tmp_path):
    barrier = threading.Barrier(2)

    def write(path):
        path.write_bytes(b"whole")
        barrier.wait(10)  # both files are half written when the first is renamed

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(replace_file, tmp_path / "file", write) for _ in range(2)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_bytes() == b"whole"


def test_kill_between_renames_loses_nothing(tmp_path):
    (tmp_path / ".data.replaced").mkdir()
    (tmp_path / ".data.replaced" / "kept").write_text("x")

    # Any use of the folder recovers the moved dataset first.
    with pytest.raises(ZeroDivisionError), replace_folder(tmp_path / "data"):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "kept"]
