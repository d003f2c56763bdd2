"""Whatever a server, a question or a model does, a run ends with a score or one line and can
resume.

No answer is lost or asked twice. Cases are generated: a kind of fault and its scope (all requests,
some questions, the first ones, after some answers, now and then) determine the seed of batch size,
requests in flight and questions. Then the fault is removed and the same command is repeated.
"""

import contextlib
import hashlib
import random
import re
import time
from collections import Counter
from dataclasses import replace
from itertools import repeat

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http import openai_chat
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.models.load import wrap_plug_in
from eval_harness.records.request import Response
from eval_harness.records.selection import select_questions
from eval_harness.runs.ask import MAX_CONSECUTIVE_FAILURES
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import answer_id, read_answer_journal
from eval_harness.runs.runner import run_evaluation, score_run
from eval_harness.store.submit import build_submission
from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import request
from tests.helpers import refused
from tests.sampling import few

TRANSIENT_FAULTS = (
    *(
        "500",
        "502",
        "429",
        "429 without Retry-After",
        "503",
        "hang",
        "hang in the body",
        "slow bytes",
        "reset",
    ),
    *("half", "type", "empty", "nonsense", "stream"),
)
FATAL_FAULTS = ("401", "404")
HARMLESS_FAULTS = ("twice", "plain text")
SERVER_FAULTS = (*TRANSIENT_FAULTS, "400", "tools", *FATAL_FAULTS, *HARMLESS_FAULTS)
UNREADABLE_REPLIES = ("type", "half", "empty", "nonsense", "stream")
"""Not replies of a chat server: if a server's first reply is one of these, the run does not wait
for it to recover.
"""
SLOW_FAULTS = ("hang", "hang in the body", "slow bytes")
FAULT_MESSAGES = {
    "stream": "streams its reply",
    "tools": "calls a tool instead of answering",
    "502": "trouble 502",
}
"""Fault -> words of its message, in the error or in the journal."""

PLUG_IN_FAULTS = {
    "raises": "RuntimeError: refused",
    "a number": "TypeError: returned 7 instead of a Response",
    "nothing": "ValueError: no response was returned",
    "endless texts": "ValueError: generate returned 2 texts for 1 requests",
    "a text": None,
}
"""What a plug-in does with a question -> the recorded error; None: answered if asked alone."""
CUDA_ERROR = "RuntimeError: CUDA error: device-side assert triggered"
FAULT_KINDS = (*SERVER_FAULTS, *PLUG_IN_FAULTS, "dies", "mixed")
FAULT_SCOPES = (
    "always",
    "some questions",
    "the first requests",
    "after some answers",
    "now and then",
)
MAX_RUN_S = 100.0
"""Maximum seconds of a run; the longest takes about 20 on an idle machine."""


class Scenario:
    """A fault, the questions it affects, and the run that meets it."""

    def __init__(self, kind, scope, data, out):
        self.kind, self.scope, self.data, self.out = kind, scope, data, out
        self.chance = random.Random(f"{kind} {scope}")
        # Slow faults take about a second per question.
        self.limit = 6 if kind in SLOW_FAULTS else self.chance.choice([12, 20, 28])
        self.first, self.after = self.chance.randint(1, 2), self.chance.randint(1, 12)
        self.mended = False
        self.served = Counter()
        """Question -> number of answers given."""

    def concerns(self, question):
        return hashlib.sha256(question.encode()).digest()[0] < 64

    def is_faulty(self, question, requests, times_asked):
        """True if the fault occurs now, after `requests` requests in all, `times_asked` of this
        question.
        """
        wrong = {
            "always": True,
            "some questions": self.concerns(question),
            "the first requests": requests <= self.first,
            "after some answers": self.served.total() >= self.after,
            "now and then": times_asked <= 2 and self.chance.random() < 0.3,
        }
        return not self.mended and wrong[self.scope]

    def config(self, model, settings, **changes):
        return EvalConfig(
            "mediconfusion",
            model,
            self.data,
            settings=settings,
            limit=self.limit,
            out=self.out,
            **changes,
        )


class Server(Scenario, ChaosServer):
    """A chat server with a fault."""

    def __init__(self, *scenario):
        Scenario.__init__(self, *scenario)
        ChaosServer.__init__(self, hang=1.0)
        slow = self.kind in SLOW_FAULTS
        self.settings = Settings(
            in_flight=self.chance.choice([4, 8] if slow else [1, 3, 8]),
            timeout=0.7 if slow else 20.0,
            wait_server=2.5 if slow else 1.0,
            base_url=self.url,
            no_look=True,
        )

    def fault_for(self, question):
        return self.kind if self.is_faulty(question, sum(self.asked.values()), self.asked[question]) else None

    def run(self):
        if self.mended:
            self.settings = replace(self.settings, timeout=20.0)
        return run_evaluation(self.config("openai:m", self.settings))[0]

    def check(self, line, statuses, records):
        concerned = sum(map(self.concerns, self.asked))
        failed = [entry["error"] for entry in records.values() if entry["status"] == "failed"]
        assert all(FAULT_MESSAGES.get(self.kind, "") in why for why in (*failed, *filter(None, [line]))), (line, failed)
        if self.kind in HARMLESS_FAULTS:
            assert set(statuses) == {"answered"}, line
        elif self.scope == "always":
            assert line, "a server that answers nothing ends the run in one line"
        elif self.scope == "after some answers":
            assert line or statuses.count("failed") <= 2, "and so does one that answers nothing more"
        elif self.kind in FATAL_FAULTS and self.scope != "some questions":
            assert len(statuses) == self.limit, line
        elif self.scope == "some questions":
            assert (len(statuses), statuses.count("failed")) == (self.limit, concerned), line
        elif self.kind in TRANSIENT_FAULTS and (self.scope == "now and then" or self.kind not in UNREADABLE_REPLIES):
            assert set(statuses) == {"answered"}, line
        if self.scope == "some questions" and self.kind not in HARMLESS_FAULTS:
            assert self.run().statuses["failed"] == concerned, "only those that it fails on are left"


class PlugIn(Scenario):
    """A plug-in that answers in batches of `size`, and dies or fails at questions, in one way or in
    a random way for each.
    """

    def __init__(self, *scenario):
        super().__init__(*scenario)
        self.size, self.asked = self.chance.choice([1, 4, 16]), Counter()
        names = list(select_questions("mediconfusion", self.data, None, limit=self.limit).questions["question_id"])
        draw = (lambda: self.chance.choice(tuple(PLUG_IN_FAULTS))) if self.kind == "mixed" else (lambda: self.kind)
        self.how = {name: draw() for name in names}
        if self.chance.random() < 0.3:  # neighbours fail in the same way
            start = self.chance.randrange(self.limit // 2)
            self.row = set(names[start : start + MAX_CONSECUTIVE_FAILURES + 2])

    row = frozenset()
    needs_images = False

    def concerns(self, question):
        return super().concerns(question) or question in self.row

    def fault_for(self, question):
        faulty = self.is_faulty(question, self.asked.total(), self.asked[question])
        return self.how[question] if faulty else None

    def generate(self, requests):
        for start in range(0, len(requests), self.size):
            batch = requests[start : start + self.size]
            self.asked.update(batch_request.question_id for batch_request in batch)
            faults = {batch_request.question_id: self.fault_for(batch_request.question_id) for batch_request in batch}
            if fatal := {"raises", "dies"}.intersection(faults.values()):
                raise RuntimeError("CUDA error: device-side assert triggered\nmore" if "dies" in fatal else "refused")
            for batch_request in self.chance.sample(batch, len(batch)):
                match faults[batch_request.question_id]:
                    case "a number":
                        yield 7
                    case "endless texts":
                        yield from repeat("A")
                    case "nothing":
                        pass
                    case fault:
                        self.served[batch_request.question_id] += fault is None or len(requests) == 1
                        yield (
                            "A" if fault == "a text" else Response(batch_request.question_id, batch_request.sample, "A")
                        )

    def run(self):
        settings = Settings()
        return run_evaluation(
            self.config("mine.py:M", settings),
            lambda *_: wrap_plug_in(self, "M", "--model mine.py:M", settings),
        )[0]

    def check(self, line, statuses, records):
        broken = {
            name for name in self.how if self.concerns(name) and (self.kind == "dies" or PLUG_IN_FAULTS[self.how[name]])
        }
        reasons = [entry["error"] for entry in records.values() if entry["status"] == "failed"]
        assert all(error.startswith((CUDA_ERROR, *filter(None, PLUG_IN_FAULTS.values()))) for error in reasons), reasons
        if line:
            assert any(why in line for why in (CUDA_ERROR, *filter(None, PLUG_IN_FAULTS.values()))), line
            assert "Error: " in (self.out / "error.txt").read_text()
            assert self.asked.total() < 40 * max(MAX_CONSECUTIVE_FAILURES, self.size), (
                "a model that answers nothing stops soon"
            )
        elif self.scope == "some questions":
            assert {name for (name, _), entry in records.items() if entry["status"] == "failed"} == broken
        if self.kind == "a text":
            assert set(statuses) == {"answered"}, line
        elif self.scope == "always" and self.kind != "mixed":
            assert line, "a model that answers nothing ends the run in one line"


def journal(folder):
    return {answer_id(line): line for line in read_answer_journal(folder / "answers.jsonl")}


FAULT_CASES = [
    (kind, FAULT_SCOPES[(at + shift) % len(FAULT_SCOPES)]) for shift in range(2) for at, kind in enumerate(FAULT_KINDS)
]
"""(fault, scope): every fault with two of the scopes."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.01)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scope"), few(sorted(FAULT_CASES, key=lambda case: FAULT_CASES.index(case) % 7), 4))
def test_every_run_ends_with_a_score_or_one_line_and_resumes(phantoms, tmp_path, capsys, kind, scope):
    scenario = (Server if kind in SERVER_FAULTS else PlugIn)(
        kind, scope, str(phantoms / "mediconfusion"), tmp_path / "run"
    )
    result, line = None, ""
    with scenario if isinstance(scenario, ChaosServer) else contextlib.nullcontext():
        start = time.monotonic()
        try:
            result = scenario.run()
        except BadInput as error:
            line = str(error)
        assert time.monotonic() - start < MAX_RUN_S
        assert "\n" not in line and (result is None) == bool(line)
        records = journal(scenario.out)
        output = capsys.readouterr().err
        answered = {key: entry["response"] for key, entry in records.items() if entry["status"] == "answered"}
        statuses = [entry["status"] for entry in records.values()]
        assert all(entry["error"] for entry in records.values() if entry["status"] == "failed"), (
            "a reason is in the journal"
        )
        # The health check may repeat one answered question.
        twice = [question for question, count in scenario.served.items() if count > 1]
        assert len(twice) <= 1, "at most one question is asked again, before a server or a model is given up"
        if len(records) > 1:  # no terminal: progress is lines
            assert re.search(r"\d+/\d+ \[\d", output), output
        scenario.check(line, statuses, records)
        if records and result is None:
            assert not (scenario.out / "result.json").exists(), "what was never asked is not scored"
            if len(records) < scenario.limit:
                assert "never requested" in refused(score_run, scenario.out)
                assert "Nothing was submitted" in refused(build_submission, scenario.out, data=scenario.data)
        # The same command again, now without the fault.
        scenario.mended = True
        scenario.served.clear()
        assert scenario.run().statuses["failed"] == 0
    resumed_records = journal(scenario.out)
    assert [entry["status"] for entry in resumed_records.values()] == ["answered"] * scenario.limit
    assert {key: resumed_records[key]["response"] for key in answered} == answered
    if scenario.served:
        assert scenario.served.total() == scenario.limit - len(answered), (
            "what was answered is not asked again, all else is"
        )


def test_waiting_for_a_server_is_reported(monkeypatch, capsys):
    """One line every ten seconds (here 0.1) without an answer."""
    monkeypatch.setattr(openai_chat, "REPORT_INTERVAL_S", 0.1)
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.2)
    with ChaosServer(answer=lambda body: "A" if server.asked.total() > 5 else (503, {"message": "trouble"})) as server:
        backend = OpenAIChat("m", Settings(base_url=server.url, wait_server=60.0))
        assert {response.status for response in backend.generate([request(i) for i in range(12)])} == {"answered"}
    output = capsys.readouterr().err
    assert re.search(
        r"--model openai:m: no answer from http://127\S+ for .*; giving up after 60 s \(HTTP 503: .*trouble",
        output,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "method"),
    few([("lacks", "mc"), ("lacks, allowed", "gd"), ("not a number", "ps"), ("not a number", "mc")]),
)
def test_a_defective_local_model_ends_in_one_line_or_is_recorded(phantoms, tmp_path, fault, method):
    """A checkpoint without the weights of its last layer, or a network that computes NaN."""
    from safetensors.torch import load_file, save_file

    from eval_harness.models.local.tiny_vlm import make_tiny_vlm
    from eval_harness.models.local.transformers_vlm import TransformersVLM

    file = make_tiny_vlm(tmp_path / "tiny") / "model.safetensors"
    weights = load_file(file)
    settings = Settings(allow_missing_weights="allowed" in fault)
    options = {"settings": settings, "method": method, "limit": 12, "out": tmp_path / "run", "max_tokens": 2}
    config = EvalConfig("mediconfusion", str(tmp_path / "tiny"), str(phantoms / "mediconfusion"), **options)

    def loaded(model, settings):
        backend = TransformersVLM(model, settings)
        backend.network.model.lm_head.weight.data.fill_(float("nan"))
        return backend

    if fault == "not a number":
        assert "its logits are NaN" in refused(run_evaluation, config, loaded)
        assert {entry["error"] for entry in journal(config.out).values()} == {"its logits are NaN"}
        # The same command resumes, and asks all of them again.
        assert run_evaluation(config, TransformersVLM)[0].statuses["failed"] == 0
    else:
        save_file({name: value for name, value in weights.items() if "lm_head" not in name}, file, {"format": "pt"})
        words = "the checkpoint lacks 1 of the model's weights"
        if settings.allow_missing_weights:
            assert run_evaluation(config)[0].deviations[0].startswith(words)
        else:
            assert words in refused(run_evaluation, config) and not config.out.exists()
