"""Whatever a server does, the run ends by itself, with a score or one line; nothing is lost, nothing asked twice, and it can be resumed."""

import hashlib
import json
import random
import re
import time

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http import openai_chat
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import evaluate
from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import request
from tests.sampling import few

PASSING = ("500", "429", "429 without Retry-After", "503", "hang", "hang in the body", "slow bytes", "reset", "half", "type",
           "empty", "nonsense", "stream")  # fmt: skip
FATAL = ("401", "404", "redirect")
UNREADABLE = ("type", "half", "empty", "nonsense", "stream")
"""No replies of a chat server: what sends them first is not waited for."""
HARMLESS = ("twice", "plain text")
KINDS = (*PASSING, "tools", *FATAL, *HARMLESS)
SCOPES = ("always", "some questions", "the first requests", "after some answers", "now and then")
SLOW = ("hang", "hang in the body", "slow bytes")
BOUND = 100.0
"""Seconds within which every run ends; the longest takes about 20 on a quiet machine."""


class Faulty(ChaosServer):
    """Misbehaves in one way: for every request, for a quarter of the questions, for the first requests, after some answers, at random."""

    def __init__(self, kind, scope, seed):
        super().__init__(hang=4.0)
        self.kind, self.scope, self.chance, self.seed = kind, scope, random.Random(f"{kind} {scope} {seed}"), seed
        self.first, self.after = self.chance.randint(1, 2), self.chance.randint(1, 12)

    def concerns(self, question):
        """Whether a question is one of the quarter."""
        return hashlib.sha256(f"{self.seed} {question}".encode()).digest()[0] < 64

    def fault_for(self, question):
        wrong = {
            "always": True,
            "some questions": self.concerns(question),
            "the first requests": sum(self.asked.values()) <= self.first,
            "after some answers": sum(self.served.values()) >= self.after,
            "now and then": self.asked[question] <= 2 and self.chance.random() < 0.3,
        }
        return self.kind if wrong[self.scope] else None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.01)
    monkeypatch.setenv("NO_PROXY", "*")


def journal(folder):
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    return {(line["question_id"], line["sample"]): line for line in lines}


def generated(seeds=3):
    """(kind, scope, seed): every kind in one scope, then in the next one, with another seed once all pairs are there."""
    for round_number in range(seeds * len(SCOPES)):
        for at, kind in enumerate(KINDS):
            yield kind, SCOPES[(at + round_number) % len(SCOPES)], round_number // len(SCOPES)


@pytest.mark.parametrize(("kind", "scope", "seed"), few(generated(), 2 * len(KINDS)))
def test_every_run_ends_with_a_score_or_one_line_and_resumes(phantoms, tmp_path, kind, scope, seed):
    draw = random.Random(seed)
    settings = Settings(in_flight=draw.choice([1, 3, 8]), timeout=1.5 if kind in SLOW else 20.0, wait_server=5.0)
    limit = draw.choice([12, 20, 28])

    def run(server):
        settings.base_url = server.url
        data = str(phantoms / "mediconfusion")
        return evaluate(
            EvalConfig("mediconfusion", "openai:m", data, settings=settings, limit=limit, out=tmp_path / "run")
        )[0]

    start, result, line = time.monotonic(), None, ""
    with Faulty(kind, scope, seed) as server:
        try:
            result = run(server)
        except BadInput as error:
            line = str(error)
        served, concerned = server.served.copy(), {question for question in server.asked if server.concerns(question)}
    assert time.monotonic() - start < BOUND
    assert "\n" not in line
    kept = journal(tmp_path / "run")
    statuses = [entry["status"] for entry in kept.values()]
    assert all(entry["error"] for entry in kept.values() if entry["status"] == "failed"), "a reason is in the journal"
    twice = {question: count for question, count in served.items() if count > 1}
    assert len(twice) <= 1, "at most one question is asked again, before the server is given up"
    assert (result is None) == bool(line)
    if kind in HARMLESS:
        assert set(statuses) == {"answered"}, line
    elif scope == "always" or kind in FATAL:
        assert line, "a server that answers nothing ends the run in one line"
    elif scope == "after some answers":
        assert line or statuses.count("failed") <= 2, "and so does one that answers nothing more"
    elif scope == "some questions":
        assert (len(statuses), statuses.count("failed")) == (limit, len(concerned)), line
    elif kind in PASSING and (scope == "now and then" or kind not in UNREADABLE):
        assert set(statuses) == {"answered"}, line
    if result is None:
        assert not (tmp_path / "run" / "result.json").exists(), "what was never asked is not scored"
    if scope == "some questions" and kind in (*PASSING, "tools"):
        with Faulty(kind, scope, seed) as server:  # only those that it fails on are left
            assert run(server).statuses["failed"] == len(concerned)
    with ChaosServer() as calm:
        assert run(calm) is not None
        asked = sum(calm.asked.values())
    answered = [key for key, entry in kept.items() if entry["status"] == "answered"]
    assert asked == limit - len(answered), "what was answered is not asked again, all else is"
    now = journal(tmp_path / "run")
    assert {now[key]["response"] for key in answered} == {kept[key]["response"] for key in answered}
    assert [entry["status"] for entry in now.values()] == ["answered"] * limit


def test_what_is_waited_for_is_said(monkeypatch, capsys):
    """Before the first answer a line every ten seconds (here 0.1), later one for each long wait."""
    monkeypatch.setattr(openai_chat, "LINE_EVERY", 0.1)
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.2)
    for kind, words in (("503", r"\(HTTP 503: trouble 503"), ("hang", r"\(its reply is awaited\)")):
        with Faulty(kind, "the first requests", 1) as server:
            backend = OpenAIChat("m", Settings(base_url=server.url, timeout=1.0, wait_server=60.0))
            assert {found.status for found in backend.generate([request(i) for i in range(12)])} == {"answered"}
        said = capsys.readouterr().err
        assert re.search(rf"--model openai:m: waiting for http://127\S+ since .* of at most 60 s {words}", said), kind
    with Faulty("503", "after some answers", 1) as server, pytest.raises(BadInput, match="does not answer"):
        list(OpenAIChat("m", Settings(base_url=server.url, wait_server=3.0)).generate([request(i) for i in range(28)]))
    assert re.search(r"--model openai:m: HTTP 503: trouble 503.*; asked again in \d+ s", capsys.readouterr().err)
