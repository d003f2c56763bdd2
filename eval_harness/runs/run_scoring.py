"""A run folder scored: its journal and its judge's replies to `answers.parquet`, `judge.parquet` and what `derive` makes of them.

Scoring the same answers again gives the same files, and asks the judge nothing twice: its replies are kept in the run folder. See also:
reading and scoring (`derive/`), what a judge is asked (`reader/judge.py`), about which answers (`derive/reading.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.files import replace_file
from eval_harness.derive.answer_table import (
    answer_frame,
    answer_row,
    check_all_asked,
    encode_answers,
    encode_judge_replies,
    sum_usage,
)
from eval_harness.derive.derivation import Derived, derive, write_derived
from eval_harness.derive.reading import judge_queries, with_judge, without_judge
from eval_harness.derive.run_files import ANSWERS_FILE, JUDGE_FILE
from eval_harness.models.http.chat_client import permit_sending, server_address
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.reader.judge import JudgeRequest, judge_record
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Result
from eval_harness.records.run import RunRecord, read_run
from eval_harness.runs.reply_cache import ReplyCache
from eval_harness.runs.run_folder import read_answer_journal, read_run_questions, write_run

JUDGE_WORKERS = 8
JUDGE_REPLY_TOKENS = 1024
"""Output tokens allowed to the judge's reply; one that reasons gets more."""


@dataclass(frozen=True)
class RunContents:
    """A run folder's run, questions and answers, with the replies of its judge where it has one."""

    run: RunRecord
    questions: pd.DataFrame
    answers: pd.DataFrame
    replies: pd.DataFrame | None

    def derived(self) -> Derived:
        """Its readings and scores."""
        return derive(self.run, self.answers, self.questions, self.replies)


def load_run_contents(
    folder: Path, extraction: str | None = None, judged: bool = True, judge: dict[str, Any] | None = None
) -> RunContents:
    """Contents of a run folder. `extraction`: overrides the run's way of reading; not `judged`: without the run's judge; `judge`: with
    this one instead.

    The judge is asked what its cache in the folder does not hold. Raises BadInput if the folder is no run folder, its journal is
    damaged, or not everything was asked.
    """
    run, questions = read_run(folder), read_run_questions(folder)
    run = with_judge(run, judge) if judge else run if judged else without_judge(run)
    records = read_answer_journal(folder / "answers.jsonl")
    check_all_asked(folder, run, questions, records)
    usage = sum_usage(records, run.environment.get("price_per_million_tokens"))
    method = run.method.model_copy(update={"extraction": extraction} if extraction else {})
    run = run.model_copy(update={"environment": run.environment | usage, "method": method})
    answers = answer_frame(map(answer_row, records))
    return RunContents(run, questions, answers, _replies(run, answers, questions, folder))


def score_run(
    folder: Path, extraction: str | None = None, judged: bool = True, judge: dict[str, Any] | None = None
) -> Result:
    """Score the answers of a run folder and write its files; `run.json` names a `judge` from then on. Raises BadInput as `answered`."""
    found = load_run_contents(folder, extraction, judged, judge)
    derived = found.derived()
    replace_file(folder / ANSWERS_FILE, encode_answers(found.answers))
    if found.replies is not None:
        replace_file(folder / JUDGE_FILE, encode_judge_replies(found.replies))
    if judge:
        write_run(folder, with_judge(read_run(folder), judge), None)
    write_derived(folder, derived)
    return derived.result


def judge_run(folder: Path, judge: str, base_url: str | None = None, send_to_provider: bool = False) -> Result:
    """Let a judge (`openai:NAME`, served at `base_url`) read what the rules left unread, and write the files with what it replied;
    `run.json` names it from then on.

    Raises BadInput as `answered`, when the server cannot be reached, and before anything of a custom set is sent to another machine
    without `send_to_provider`.
    """
    run = read_run(folder)
    named = judge_record(judge, base_url, run.method.name)
    if run.benchmark.origin == "custom" and run.benchmark.name != run.benchmark.family:
        sent = f"the unread answers to questions of {run.benchmark.name}, with the questions"
        permit_sending(f"--judge {judge}", server_address(judge, base_url), lambda: sent, send_to_provider)
    return score_run(folder, judge=named)


def _replies(run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame, folder: Path) -> pd.DataFrame | None:
    """The replies of the run's judge, kept in the run folder, so that scoring again sends no new requests."""
    if run.method.judge is None:
        return None
    judge = Judge(run.method.judge["model"], folder / "judge", run.method.judge.get("base_url"))
    asked = judge_queries(run, answers, questions)
    replies = judge.replies([each.query for each in asked])
    rows = [(each.question_id, each.sample, reply) for each, reply in zip(asked, replies, strict=True)]
    return pd.DataFrame(rows, columns=["question_id", "sample", "reply"])


class Judge:
    """A judge model behind an OpenAI-compatible server, its replies kept under `cache`."""

    def __init__(self, model: str, cache: Path, base_url: str | None = None) -> None:
        self.model = model.removeprefix("openai:")
        self._settings = Settings(base_url=server_address(self.model, base_url), in_flight=JUDGE_WORKERS)
        self._cache = ReplyCache(cache, {"model": self.model, "server": self._settings.base_url}, [], keeps_draws=True)

    def replies(self, queries: Sequence[JudgeRequest]) -> list[str | None]:
        """The judge's reply to each, many queries at a time; None where the server gave none after all tries.

        The server is looked for when something is asked that the cache does not hold. Raises BadInput if it cannot be reached, refuses
        the key or the model, or has gone.
        """
        asked = {each: _request(each) for each in queries}
        responses = self._cache.through(self._ask)(asked.values())
        found = {(each.question_id, each.sample): each.text for each in responses if each.status == "answered"}
        return [found.get((asked[each].question_id, each.turn)) for each in queries]

    def _ask(self, requests: Iterator[Request]) -> Iterator[Response]:
        for first in requests:
            judge = OpenAIChat(self.model, self._settings, called=f"--judge {self.model}")
            yield from judge.generate(chain([first], requests))


def _request(query: JudgeRequest) -> Request:
    """A query as a request; its question's id is what is asked."""
    return Request(
        f"{query.system}\0{query.prompt}",
        query.turn,
        query.prompt,
        None,
        (),
        "single",
        system=query.system,
        temperature=query.temperature,
        max_tokens=JUDGE_REPLY_TOKENS,
    )
