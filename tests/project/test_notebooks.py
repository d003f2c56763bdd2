"""Run the notebooks from an empty folder and compare the output with theirs: code cells in order,
in this process.

After a change that is meant to change the output, run `RENEW_NOTEBOOKS=1 python -m pytest
THIS_FILE` and check the diff.
"""

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).resolve().parents[2] / "docs/notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in BOOKS] == ["compare_two_models", "evaluate_and_submit", "load_and_look"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_holds(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = json.loads(path.read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    for number, cell in enumerate(book["cells"]):
        if cell["cell_type"] != "code":
            continue
        stored_output = "".join("".join(out["text"]) for out in cell["outputs"] if out.get("name") == "stdout")
        printed = io.StringIO()
        code = compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")
        with redirect_stdout(printed):
            exec(code, names)
        if "RENEW_NOTEBOOKS" not in os.environ:
            assert printed.getvalue() == stored_output, (
                f"{path.name}, cell {number}: prints something else than it holds"
            )
        elif printed.getvalue() != stored_output:
            stream = {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
            cell["outputs"] = [out for out in cell["outputs"] if out.get("name") != "stdout"] + [stream]
            path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
