"""Check the documents: README's examples run unchanged, README is short, the notebooks print what
they hold, the pictures of the statistics are those that their script draws now, with captions that
agree, and the site of guides is built without a warning.

After a change that is meant to change the output of a notebook, run `RENEW_NOTEBOOKS=1 python -m
pytest THIS_FILE` and check the diff.
"""

import io
import json
import os
import re
import shlex
import tomllib
from contextlib import redirect_stdout

import pytest

from benchmarks.scoring.statistics_pictures import DOCS, PICTURES
from tests.commands import medprobe
from tests.environments import ROOT, environment
from tests.processes import output_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```(python|bash)\n(.*?)^```", README)


@pytest.mark.exhaustive
def test_the_examples_run_as_they_stand_after_the_demo(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("leaderboard_space.app.serve", lambda store, **options: served.append((store, options["data"])))
    monkeypatch.chdir(tmp_path)
    medprobe("demo", cwd=tmp_path)
    outputs, names = [], {}
    datasets = re.findall(r"(?ms)^```(python)\n(.*?)^```", (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8"))
    for language, block in [*BLOCKS, *datasets]:
        if language == "python":
            exec(compile(block, "README.md", "exec"), names)
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "medprobe"
            outputs.append(medprobe(*words, cwd=tmp_path).stdout)
    assert len(outputs) > 6 and all(outputs[:-1]) and len(served) == 2
    assert served[1] == ("demo", ["demo/data/mediconfusion"])
    score_table = next(text for text in outputs if text.startswith("model"))
    assert all(name in score_table for name in ("Chance", "Always A", "tiny-vlm", "guessing"))
    assert names["run"].result.model.name == "Chance" and len(names["questions"]) == 28


def test_the_readme_is_short_and_leads_to_every_guide():
    assert len(README.splitlines()) <= 100
    prose = re.sub(r"(?ms)^```.*?^```|^    .*?$|^\|.*?$|^!.*?$|^#.*?$", "", README)
    sentences = re.split(r"(?<=[.?!:])\s+|\n\n", re.sub(r"\]\([^)]*\)", "]", prose))
    assert max(len(sentence.split()) for sentence in sentences) <= 30, max(
        sentences, key=lambda sentence: len(sentence.split())
    )
    assert re.search(r"\]\(([^)]*)\)", prose)[1] == "docs/index.md"
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]*)\)", index))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked
    for page, text in ((ROOT, README), (ROOT / "docs", index)):
        assert all((page / target).exists() for target in re.findall(r"\]\(([^)#:]*)\)", text))


@pytest.mark.harness
@pytest.mark.timeout(900)
def test_the_site_has_every_guide(request, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = environment(request.config.cache, "docs", tuple(project["optional-dependencies"]["docs"]))
    command = [python, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site"]
    output_of(command, cwd=ROOT)
    for guide in (ROOT / "docs").glob("*.md"):
        page = "index.html" if guide.stem == "index" else f"{guide.stem}/index.html"
        assert (tmp_path / "site" / page).is_file(), guide


BOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def test_there_are_three_notebooks():
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


def test_the_pictures_are_those_that_the_script_draws() -> None:
    page = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("statistics.md", "sight.md"))
    for name, draw in PICTURES.items():
        pictures = draw()
        assert (DOCS / name).read_text(encoding="utf-8") == pictures, (
            f"{name}: run benchmarks/scoring/statistics_pictures.py"
        )
        caption = re.search(rf"!\[([^]]*)\]\({name}\)", page)
        assert caption, name
        assert all(
            f"{score} %<" in pictures
            for score in re.findall(r"\b[A-C](?: scores)?,?(?: which [a-z ]+,)? (\d+) ", caption[1])
        ), name
        for low, high in re.findall(r"(\d+) to (\d+) from", caption[1]):
            assert f">{low} to {high}<" in pictures, (name, low, high)
    worth = re.search(r"worth (\d+) independent\)", page)
    assert worth and f"worth {worth[1]} independent" in PICTURES["one_score.svg"]()
