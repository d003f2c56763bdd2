"""The leftovers of killed processes are removed by the next one, and nothing of one that lives."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_builders.build import replace_folder
from dataset_builders.files import remove_abandoned_folders, replace_file, temporary_folder

HOLD = """
import sys, time
from pathlib import Path
from dataset_builders.files import temporary_folder
with temporary_folder(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "half").write_text("x")
    print(folder.name, flush=True)
    time.sleep(600)
"""


def holder(parent, prefix):
    """A process that holds a temporary folder, and the folder's name."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(parent), prefix], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_what_a_killed_process_leaves_is_removed_and_what_a_living_one_holds_is_not(tmp_path):
    prefix = ".data."
    (tmp_path / ".data.backup").mkdir()  # not of ours
    (killed, dead), (living, alive) = holder(tmp_path, prefix), holder(tmp_path, prefix)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (tmp_path / dead / "half").exists()
        with temporary_folder(tmp_path, prefix) as mine:
            assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {mine.name, alive, ".data.backup"}
        assert {path.name for path in tmp_path.iterdir()} == {alive, f"{alive}.lock", ".data.backup"}
    finally:
        living.kill()
        living.wait()
    assert remove_abandoned_folders(tmp_path, prefix) == [tmp_path / alive]
    assert [path.name for path in tmp_path.iterdir()] == [".data.backup"]


def test_threads_that_replace_the_same_file_do_not_take_each_others_half(tmp_path):
    both = threading.Barrier(2)

    def write(path):
        path.write_bytes(b"whole")
        both.wait(10)  # each has its half when the first renames its own

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(replace_file, tmp_path / "file", write) for _ in range(2)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_bytes() == b"whole"


def test_a_process_killed_between_the_two_renames_loses_nothing(tmp_path):
    (tmp_path / ".data.replaced").mkdir()
    (tmp_path / ".data.replaced" / "kept").write_text("x")
    with pytest.raises(ZeroDivisionError), replace_folder(tmp_path / "data"):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "kept"]
