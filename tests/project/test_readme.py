"""Run README's examples unchanged, in order, in the folder where `medprobe demo` was run; check
that it is short and so are its sentences.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import medprobe

ROOT = Path(__file__).resolve().parents[2]
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


def test_it_is_short_and_leads_to_every_guide():
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
