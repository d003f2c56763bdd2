"""Test the judge against a local server that plays it."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.reading import judge_queries, read_due_answers
from eval_harness.derive.run_files import answer_frame
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.reader import Reading
from eval_harness.reader.judge import (
    NOT_UNDERSTOOD_RULE,
    JudgeRequest,
    closeness_prompt,
    extraction_prompt,
    read_closeness,
    read_extraction,
)
from eval_harness.records.result import Benchmark, Method, Model, RunRecord, RunRequest
from eval_harness.runs.runner import Judge
from tests.chaos.server import ChaosServer
from tests.commands import medprobe
from tests.helpers import write_lines

OPTIONS = ["wide bronchi", "a cavity"]


@pytest.fixture
def server() -> Iterator[ChaosServer]:
    with ChaosServer(answer=lambda body: "A") as judge_server:
        yield judge_server


@pytest.fixture
def judge(server: ChaosServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    # Retries of failing requests would otherwise wait for seconds.
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.001)
    return Judge("openai:judge", tmp_path / "cache", server.url)


def questions() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": ["q1", "q2", "q3"],
            "case_id": ["1", "2", "3"],
            "question": "What is {shown}?",
            "options": [OPTIONS] * 3,
            "answer": [[0]] * 3,
            "question_type": "single",
        }
    )


def answers(*responses: str) -> pd.DataFrame:
    rows = zip(("q1", "q2", "q3"), responses, ("answered", "answered", "no response"), strict=True)
    return answer_frame(
        {"question_id": name, "sample": 0, "response": text, "delivery": delivery} for name, text, delivery in rows
    )


def judged_run(samples: int = 1, permute: bool = False) -> RunRecord:
    request = RunRequest(
        benchmark="x", data="", split="test", fingerprint="f", model="m", method="mc", prompt=None, samples=samples,
        generation={}, permute=permute,
    )  # fmt: skip
    return RunRecord(
        run_id="x", request=request, benchmark=Benchmark(name="x", format="gmai-mmbench", split="test", questions=3),
        model=Model(name="M"), method=Method(name="mc", judge={"model": "judge"}), created_at="2026-11-01T00:00:00+00:00",
    )  # fmt: skip


def read(judge: Judge, answers: pd.DataFrame, run: RunRecord) -> tuple[pd.DataFrame, dict[str, object]]:
    """Read the answers by rules and by the judge's replies."""
    queries = judge_queries(run, answers, questions())
    replies = judge.replies([query.request for query in queries])
    rows = [(query.question_id, query.sample, reply) for query, reply in zip(queries, replies, strict=True)]
    readings, report = read_due_answers(
        run, answers, questions(), pd.DataFrame(rows, columns=["question_id", "sample", "reply"])
    )
    assert report is not None
    return readings, report


def test_judge_sees_only_unread_responses(server: ChaosServer, judge: Judge) -> None:
    server.answer = lambda body: "B"
    done, report = read(judge, answers("A", "the bronchus is the problem here", ""), judged_run())
    assert done["choice"].tolist() == [[0], [1], []] and done["status"].tolist() == [
        "answered",
        "answered",
        "failed",
    ]
    assert report == {
        "model": "judge",
        "asked": 1,
        "share": 33.3333,
        "decided": 1,
        "not_understood": 0,
        "failed": 0,
    }
    sent = server.bodies[0]
    assert sent["temperature"] == 0 and "What is {shown}?" in sent["messages"][-1]["content"]


def test_judge_replies_are_cached_on_disk(server: ChaosServer, judge: Judge, tmp_path: Path) -> None:
    request = extraction_prompt("q", OPTIONS, "hm", "single")
    assert judge.replies([request, request]) == ["A", "A"]
    new_judge = Judge("judge", tmp_path / "cache", server.url)
    # Turn and temperature are part of the cache key.
    other_turns = [JudgeRequest(request.prompt, turn=turn, temperature=1.0) for turn in (1, 2, 1)]
    for asked, times in zip([request, *other_turns], (1, 2, 3, 3), strict=True):
        assert new_judge.replies([asked]) == ["A"] and len(server.bodies) == times
    for path in (tmp_path / "cache").rglob("*.json"):
        # A killed process may leave a damaged file, which counts as missing.
        path.write_text("{torn")
    assert new_judge.replies([request]) == ["A"] and len(server.bodies) == 4


LETTER_FORMS = (
    "{}", " ({}). ", "**{}**", "option {}", "Answer: {}", r"\boxed{{{}}}", '{{"answer": "{}"}}', "<answer>{}</answer>", "I think {}",
)  # fmt: skip
NONE_REPLIES = ("none", "None.", "**none**", "Answer: none", r"\boxed{none}", '{"answer": "none"}')


@pytest.mark.parametrize("kind", ["single", "multiple", "yes_no"])
def test_judge_reply_is_read_like_a_response(kind: str) -> None:
    """Every option in every form, "none" next to an option that says so, and replies that are
    neither.
    """
    for options in (["no", "yes"],) if kind == "yes_no" else (OPTIONS, [*OPTIONS, "None of the above"]):
        for position, option in enumerate(options):
            replies = [form.format("ABC"[position]) for form in LETTER_FORMS] + [
                "abc"[position],
                f"{'ABC'[position]}. {option}",
            ]
            assert {read_extraction(reply, options, kind).choice for reply in replies} == {(position,)}, option
        for reply in NONE_REPLIES:
            assert read_extraction(reply, options, kind) == Reading((), "irrelevant", "judge: none"), reply
        for reply in ("", "D", "A or B", "I cannot tell"):
            assert read_extraction(reply, options, kind) == Reading((), "irrelevant", NOT_UNDERSTOOD_RULE), reply
        assert read_extraction("none of the options", options, kind).choice == ()
        assert read_extraction("A, B", options, kind).choice == ((0, 1) if kind == "multiple" else ())


@pytest.mark.parametrize(
    ("reply", "our_choice", "official"),
    [
        ("A: 9\nB: 2\nYour explanation: close", (0,), (0,)),
        ("A: 2\nB: 5\nYour explanation: close", (1,), (1,)),
        ("A: 5\nB: 3\nYour explanation: so", (), ()),
        ("**A:** 9\n**B:** 2\n", (0,), ()),
        ("Answer A: 9/10\nAnswer B: 2/10", (0,), ()),
        ("A: 9\n\nB: 2\n\nYour explanation: A: 9 is high", (0,), (0,)),
        ("Sorry", (), ()),
        ("A: 90\nB: 2", (), (0,)),
    ],
)
def test_free_form_chooses_the_closer_option(
    reply: str, our_choice: tuple[int, ...], official: tuple[int, ...]
) -> None:
    for extraction, expected in (("ours", our_choice), ("official", official)):
        assert read_closeness(reply, extraction=extraction).choice == expected, extraction


def test_free_form_uses_the_authors_system_message_and_temperature(server: ChaosServer, judge: Judge) -> None:
    server.answer = lambda body: "A: 5\nB: 3"
    [reply] = judge.replies([closeness_prompt("q", OPTIONS, "the bronchi are wide")])
    assert server.bodies[0]["messages"][0]["role"] == "system" and server.bodies[0]["temperature"] == 0.7
    assert reply is not None and read_closeness(reply, gap=2).choice == (0,)
    with pytest.raises(BadInput, match="two options"):
        closeness_prompt("q", ["x"], "wide")


@pytest.mark.sources
def test_closeness_prompt_equals_the_papers(sources: Path) -> None:
    published = json.loads((sources / "mediconfusion" / "answering_prompts.json").read_text())["conversion"]
    request = closeness_prompt("Q?", OPTIONS, "said")
    system, prompt = request.system, request.prompt
    assert system == published["init_prompt"]
    role = published["role"]
    assert prompt == (
        f"[Question]\nQ?\n\n[Answer A]\n{OPTIONS[0]}\n\n[Answer "
        f"B]\n{OPTIONS[1]}\n\n[{role}]\nsaid\n\n[End of "
        f"{role}]\n\n[System]\n{published['instruct_prompt']}\n\n"
    )


def test_failing_judge_server_leaves_answers_unread(server: ChaosServer, judge: Judge) -> None:
    server.answer = lambda body: (500, {"error": {"message": "no"}})
    done, report = read(judge, answers("A", "hm", ""), judged_run())
    assert done["choice"].tolist() == [[0], [], []] and report["failed"] == 1 and report["decided"] == 0


def test_permuted_answer_is_judged_in_the_order_shown(server: ChaosServer, judge: Judge) -> None:
    """The judge sees the options in the order shown; its letter is mapped back to the original
    order.
    """
    permuted_answers = answer_frame(
        {"question_id": name, "sample": sample, "response": "hm", "delivery": "answered"}
        for name in ("q1", "q2", "q3")
        for sample in (0, 1)
    )
    readings, _ = read(judge, permuted_answers, judged_run(samples=2, permute=True))
    assert readings["choice"].tolist() == [[0], [1]] * 3
    assert any("A. a cavity" in body["messages"][-1]["content"] for body in server.bodies)


def test_unreachable_judge_server_is_bad_input(server: ChaosServer, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no server can be reached"):
        Judge("judge", tmp_path, "http://127.0.0.1:9/v1").replies([JudgeRequest("x")])
    server.answer = lambda body: (401, {"error": {"message": "no"}})
    with pytest.raises(BadInput, match="--judge judge: the server refuses the key"):
        Judge("judge", tmp_path, server.url).replies([JudgeRequest("x")])


def test_erring_judge_changes_only_unread_answers() -> None:
    """A judge that is wrong about one answer in twenty never changes what a rule has read."""
    draw = random.Random(4)
    responses = (
        "A",
        "B",
        "The answer is B.",
        "I cannot tell from this image.",
        "hm",
        "The bronchus is the problem here.",
    )
    answers_600 = answer_frame(
        {
            "question_id": f"q{number % 3 + 1}",
            "sample": number // 3,
            "response": draw.choice(responses),
            "delivery": "answered",
        }
        for number in range(600)
    )
    run, run_without_judge = judged_run(samples=200), judged_run(samples=200)
    run_without_judge.method.judge = None
    by_rules, _ = read_due_answers(run_without_judge, answers_600, questions())
    queries = judge_queries(run, answers_600, questions())
    # What the rules can read is never sent to the judge.
    assert not any("The answer is B." in query.request.prompt for query in queries)
    # One reply in twenty differs.
    rows = [(query.question_id, query.sample, draw.choice(["A"] * 19 + ["B"])) for query in queries]
    by_judge, report = read_due_answers(
        run,
        answers_600,
        questions(),
        pd.DataFrame(rows, columns=["question_id", "sample", "reply"]),
    )
    read_by_rules = by_rules["status"] != "irrelevant"
    pd.testing.assert_frame_equal(by_judge[read_by_rules], by_rules[read_by_rules], check_dtype=False)
    assert report is not None and report["asked"] == len(queries) == (~read_by_rules).sum()
    assert set(by_judge[~read_by_rules]["rule"]) == {"judge: option"}


def test_score_command_reads_unread_answers_with_a_judge(server: ChaosServer, phantoms: Path, tmp_path: Path) -> None:
    names = open_repository(phantoms / "mediconfusion").questions("test")["question_id"]
    unclear = "It is hard to put into words."
    lines = [{"question_id": name, "response": "A" if n % 4 else unclear} for n, name in enumerate(names)]
    recorded = write_lines(tmp_path / "answers.jsonl", lines)
    model = ("--model", f"recorded:{recorded}", "--data", phantoms / "mediconfusion", "--out", tmp_path / "run")
    printed = medprobe("eval", "mediconfusion", *model, cwd=tmp_path).stdout.splitlines()
    count = sum(line["response"] == unclear for line in lines)
    assert printed[0].startswith("set_accuracy ") and sum(unclear in line for line in printed) == 3
    share = f"{count} of {len(lines)} answers ({100 * count / len(lines):.1f} %)"
    assert printed[1] == f"not read: {share}, counted as wrong, for instance"
    assert printed[5] == f"a judge model can read them: medprobe score {tmp_path / 'run'} --judge openai:NAME"
    done = medprobe("score", tmp_path / "run", "--judge", "openai:judge", "--base-url", server.url, cwd=tmp_path)
    assert "not read" not in done.stdout
    judged = json.loads((tmp_path / "run" / "result.json").read_text())["method"]["judge"]
    judge_report = (judged["model"], judged["asked"], judged["decided"], len(judged["prompt_hash"]))
    assert judge_report == ("judge", count, count, 16)
    medprobe("score", tmp_path / "run", "--judge", "gpt", cwd=tmp_path, code=2)
    medprobe("score", tmp_path / "run", "--judge", "openai:judge", "--no-judge", cwd=tmp_path, code=2)
