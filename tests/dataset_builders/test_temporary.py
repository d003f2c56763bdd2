"""The leftovers of killed processes are removed by the next one, and nothing of one that lives."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dataset_builders.build import build, replacing
from dataset_builders.files import remove_abandoned, replace_file, temporary_folder

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
    assert remove_abandoned(tmp_path, prefix) == [tmp_path / alive]
    assert [path.name for path in tmp_path.iterdir()] == [".data.backup"]


def test_many_at_once_leave_nothing_and_lose_nothing(tmp_path):
    draw = random.Random(1)
    waits = [draw.random() / 50 for _ in range(12)]
    trouble = []

    def one(wait):
        try:
            with temporary_folder(tmp_path, ".data.") as folder:
                (folder / "mine").write_text("x")
                time.sleep(wait)
                assert (folder / "mine").read_text() == "x"
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=one, args=[wait]) for wait in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == [] and list(tmp_path.iterdir()) == []


def test_threads_that_replace_the_same_file_do_not_take_each_others_half(tmp_path):
    both = threading.Barrier(2)

    def write(path):
        path.write_bytes(b"whole")
        both.wait(10)  # each has its half when the first renames its own

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(replace_file, tmp_path / "file", write) for _ in range(2)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_bytes() == b"whole"


def test_a_build_killed_between_its_two_renames_loses_nothing(tmp_path):
    target = tmp_path / "data"
    build("mediconfusion", out=target, text_only=True)
    before = (target / "manifest.json").read_bytes()
    target.rename(tmp_path / ".data.replaced")
    with pytest.raises(ZeroDivisionError), replacing(target):
        raise ZeroDivisionError
    assert (target / "manifest.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


KILLED_BUILD = "import sys; from dataset_builders.build import build; print('go', flush=True); build('gmai-mmbench', out=sys.argv[1])"


def test_a_killed_build_is_cleaned_up_after_by_the_next(tmp_path, monkeypatch):
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-c", KILLED_BUILD, str(tmp_path / "out" / "data")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    for _ in range(600):
        if any((tmp_path / "tmp").glob("medprobe-phantoms-*")):
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert any((tmp_path / "tmp").glob("medprobe-phantoms-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    build("halt-medvqa", out=tmp_path / "out" / "data")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data"]
    assert not any(Path(path).name.startswith("medprobe-") for path in (tmp_path / "tmp").iterdir())
