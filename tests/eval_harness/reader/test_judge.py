"""Test the judge against a local server that plays it."""

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.derive.answer_table import answer_frame
from eval_harness.derive.reading import judge_queries, read_due_answers
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
from eval_harness.records.result import Benchmark, Method, Model
from eval_harness.records.run import RunRecord, RunRequest
from eval_harness.runs.run_scoring import Judge
from tests.commands import medprobe

OPTIONS = ["wide bronchi", "a cavity"]


class Server:
    """A local server that replies with `replies` in turn (repeating the last) and records the
    requests.

    An integer is returned as an HTTP error.
    """

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.replies: list[str | int] = ["A"]
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                reply = server.replies.pop(0) if len(server.replies) > 1 else server.replies[0]
                message = {"role": "assistant", "content": reply}
                choices = [{"index": 0, "finish_reason": "stop", "message": message}]
                completion = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "judge",
                    "choices": choices,
                }
                body = json.dumps({"error": {"message": "no"}} if isinstance(reply, int) else completion).encode()
                self.send_response(reply if isinstance(reply, int) else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    judge_server = Server()
    yield judge_server
    judge_server.http.shutdown()
    judge_server.http.server_close()


@pytest.fixture
def judge(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
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


def test_judge_sees_only_unread_responses(server: Server, judge: Judge) -> None:
    server.replies = ["B"]
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
    sent = server.asked[0]
    assert sent["temperature"] == 0 and "What is {shown}?" in sent["messages"][-1]["content"]


def test_judge_replies_are_cached_on_disk(server: Server, judge: Judge, tmp_path: Path) -> None:
    request = extraction_prompt("q", OPTIONS, "hm", "single")
    for _ in range(2):
        assert judge.replies([request, request])[1] == "A"
    new_judge = Judge("judge", tmp_path / "cache", server.url)
    assert new_judge.replies([request]) == ["A"] and len(server.asked) == 1
    assert (
        # Turn and temperature are part of the cache key.
        new_judge.replies([JudgeRequest(request.prompt, turn=1, temperature=1.0)]) == ["A"] and len(server.asked) == 2
    )
    assert (
        new_judge.replies([JudgeRequest(request.prompt, turn=2, temperature=1.0)]) == ["A"] and len(server.asked) == 3
    )
    assert (
        new_judge.replies([JudgeRequest(request.prompt, turn=1, temperature=1.0)]) == ["A"] and len(server.asked) == 3
    )
    for path in (tmp_path / "cache").rglob("*.json"):
        # A killed process may leave a damaged file, which counts as missing.
        path.write_text("{torn")
    assert new_judge.replies([request]) == ["A"] and len(server.asked) == 4


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


def test_free_form_uses_the_authors_system_message_and_temperature(server: Server, judge: Judge) -> None:
    server.replies = ["A: 5\nB: 3"]
    [reply] = judge.replies([closeness_prompt("q", OPTIONS, "the bronchi are wide")])
    assert server.asked[0]["messages"][0]["role"] == "system" and server.asked[0]["temperature"] == 0.7
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


def test_failing_judge_server_leaves_answers_unread(server: Server, judge: Judge) -> None:
    server.replies = [500]
    done, report = read(judge, answers("A", "hm", ""), judged_run())
    assert done["choice"].tolist() == [[0], [], []] and report["failed"] == 1 and report["decided"] == 0


def test_permuted_answer_is_judged_in_the_order_shown(server: Server, judge: Judge) -> None:
    """The judge sees the options in the order shown; its letter is mapped back to the original
    order.
    """
    server.replies = ["A"]
    permuted_answers = answer_frame(
        {"question_id": name, "sample": sample, "response": "hm", "delivery": "answered"}
        for name in ("q1", "q2", "q3")
        for sample in (0, 1)
    )
    readings, _ = read(judge, permuted_answers, judged_run(samples=2, permute=True))
    assert readings["choice"].tolist() == [[0], [1]] * 3
    assert any("A. a cavity" in body["messages"][-1]["content"] for body in server.asked)


def test_unreachable_judge_server_is_bad_input(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no server can be reached"):
        Judge("judge", tmp_path, "http://127.0.0.1:9/v1").replies([JudgeRequest("x")])
    server.replies = [401]
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


def test_score_command_reads_unread_answers_with_a_judge(server: Server, phantoms: Path, tmp_path: Path) -> None:
    server.replies = ["A"]
    ids = pd.concat([pd.read_parquet(path) for path in sorted((phantoms / "mediconfusion").rglob("*.parquet"))])
    names = list(ids["question_id"].dropna().unique())
    unclear = "It is hard to put into words."
    lines = [{"question_id": name, "response": "A" if n % 4 else unclear} for n, name in enumerate(names)]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    answers, data = tmp_path / "answers.jsonl", phantoms / "mediconfusion"
    eval_command = (
        "eval",
        "mediconfusion",
        "--model",
        f"recorded:{answers}",
        "--data",
        data,
        "--out",
        tmp_path / "run",
    )
    lines_printed = medprobe(*eval_command, cwd=tmp_path).stdout.splitlines()
    count = sum(line["response"] == unclear for line in lines)
    line_index = next(n for n, line in enumerate(lines_printed) if line.startswith("not read"))
    assert (
        lines_printed[line_index]
        == f"not read: {count} of {len(lines)} answers ({100 * count / len(lines):.1f} %), counted as wrong, for instance"
    )
    assert (
        lines_printed[line_index - 1].startswith("set_accuracy ")
        and sum(unclear in line for line in lines_printed) == 3
    )
    command = lines_printed[line_index + 4]
    assert command == f"a judge model can read them: medprobe score {tmp_path / 'run'} --judge openai:NAME"
    done = medprobe("score", tmp_path / "run", "--judge", "openai:judge", "--base-url", server.url, cwd=tmp_path)
    assert "not read" not in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    judged = result["method"]["judge"]
    judge_report = (judged["model"], judged["asked"], judged["decided"], len(judged["prompt_hash"]))
    assert judge_report == ("judge", count, count, 16)
    medprobe("score", tmp_path / "run", "--judge", "gpt", cwd=tmp_path, code=2)
    medprobe("score", tmp_path / "run", "--judge", "openai:judge", "--no-judge", cwd=tmp_path, code=2)
