"""Run folders begun by earlier versions are found under the same name and go on: ids as the version of November 2026 wrote them."""

import json

import pytest

from dataset_builders.build import build
from eval_harness.models.interface import Settings
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.planning.plan import make_plan
from eval_harness.runs.planning.selection import Selection
from eval_harness.runs.runner import evaluate

MODEL = """
from eval_harness.models.interface import Response, chosen
class Mine:
    def __init__(self, settings): pass
    def generate(self, requests):
        for r in requests:
            yield Response(r.question_id, r.sample, "ABCDEFGH"[len(r.prompt + (r.system or "")) % len(r.options)])
    def score(self, requests):
        for r in requests:
            yield chosen(r, [-len(text) for text in r.candidates])
"""
IDS = [
    ("mediconfusion-Chance-mc-c27bd837", "mediconfusion", {"model": "baseline:chance"}),
    ("mediconfusion-Mine-mc-812aafbc", "mediconfusion", {"permute": True}),
    ("probmed-Mine-gd-14fe8477", "probmed", {"method": "gd"}),
    ("probmed-Mine-mc-59688ab9", "probmed", {"form": "authors"}),
    ("halt-medvqa-Mine-mc-25678e97", "halt-medvqa", {"samples": 3, "limit": 4}),
    ("gmai-mmbench-Mine-mc-ead9d166", "gmai-mmbench", {"system": "Be brief.", "max_tokens": 9}),
    (
        "mediconfusion-Mine-mc-b37ab873",
        "mediconfusion",
        {"shots": 1, "settings": Settings(thinking="on", generation={"top_p": 0.5}, dtype="float16")},
    ),
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in {name for _, name, _ in IDS}:
        build(name, out=folder / "data" / name)
    (folder / "mine.py").write_text(MODEL)
    return folder


@pytest.mark.parametrize(("run_id", "benchmark", "options"), IDS, ids=lambda value: str(value)[:40])
def test_the_folder_of_a_run_keeps_its_name_and_goes_on(workplace, monkeypatch, run_id, benchmark, options):
    monkeypatch.chdir(workplace)
    config = EvalConfig(**({"benchmark": benchmark, "model": "mine.py:Mine"} | options))
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "fingerprint", property(lambda selection: "v2-0"))  # what phantoms hold may change
        assert make_plan(config).run.run_id == run_id
    first, folder = evaluate(config)
    journal = folder / "answers.jsonl"
    whole = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    again, same = evaluate(config)
    found = [json.loads(line) for line in journal.read_text().splitlines()]
    assert same == folder
    assert [line | {"seconds": 0} for line in found] == [line | {"seconds": 0} for line in whole]
    assert (again.scores, again.method, again.created_at >= first.created_at) == (first.scores, first.method, True)
