"""Score a run folder.

The journal becomes `answers.parquet`, the judge's replies become `judge.parquet`, and `derive`
makes the other files from these two. Scoring the same answers again gives the same files, and the
judge is not asked again, since its replies are kept in the run folder. See also: reading and
scoring (`derive/`), what a judge is asked (`reader/judge.py`), which answers it reads
(`derive/reading.py`).
"""

from collections.abc import Iterator, Sequence
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
from eval_harness.derive.reading import judge_queries, with_judge
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
"""Concurrent requests to the judge."""
JUDGE_REPLY_TOKENS = 1024
"""Output-token limit of the judge's reply; a reasoning judge gets more."""


def derive_run(
    folder: Path, extraction: str | None = None, judged: bool = True, judge: dict[str, Any] | None = None
) -> tuple[Derived, pd.DataFrame, pd.DataFrame | None]:
    """Read and score a run folder, without writing its files.

    Its judge is asked for the replies that are not cached in the folder.

    Args:
        folder: the run folder.
        extraction: the reader to use instead of the run's, "ours" or "official".
        judged: False ignores the run's judge.
        judge: settings of a judge to use instead of the run's.

    Returns:
        (readings and scores, answers, the judge's replies if there is a judge).

    Raises:
        BadInput: not a run folder, a damaged journal, or an incomplete run.
    """
    run, questions = read_run(folder), read_run_questions(folder)
    run = with_judge(run, judge) if judge or not judged else run
    records = read_answer_journal(folder / "answers.jsonl")
    check_all_asked(folder, run, questions, records)
    usage = sum_usage(records, run.environment.get("price_per_million_tokens"))
    method = run.method.model_copy(update={"extraction": extraction} if extraction else {})
    run = run.model_copy(update={"environment": run.environment | usage, "method": method})
    answers = answer_frame(map(answer_row, records))
    replies = _replies(run, answers, questions, folder)
    return derive(run, answers, questions, replies), answers, replies


def score_run(
    folder: Path, extraction: str | None = None, judged: bool = True, judge: dict[str, Any] | None = None
) -> Result:
    """Score the answers of a run folder and write its files.

    If `judge` is given, `run.json` names it from then on. Arguments and errors are those of
    `derive_run`.
    """
    # Everything is computed before the first file is replaced.
    derived, answers, replies = derive_run(folder, extraction, judged, judge)
    replace_file(folder / ANSWERS_FILE, encode_answers(answers))
    if replies is not None:
        replace_file(folder / JUDGE_FILE, encode_judge_replies(replies))
    if judge:
        write_run(folder, with_judge(read_run(folder), judge), None)
    write_derived(folder, derived)
    return derived.result


def judge_run(folder: Path, judge: str, base_url: str | None = None, send_to_provider: bool = False) -> Result:
    """Let a judge model read what the rules could not read, and rewrite the scores.

    Args:
        folder: the run folder; its `run.json` names the judge from then on.
        judge: "openai:NAME".
        base_url: address of its server.
        send_to_provider: allow sending a custom set's answers to another machine.

    Raises:
        BadInput: see `derive_run`; also an unreachable server, or a custom set that would be
            sent to another machine without `send_to_provider`.
    """
    run = read_run(folder)
    judge_settings = judge_record(judge, base_url, run.method.name)
    if run.benchmark.origin == "custom" and run.benchmark.name != run.benchmark.family:
        data_sent = f"the unread answers to questions of {run.benchmark.name}, with the questions"
        permit_sending(f"--judge {judge}", server_address(judge, base_url), lambda: data_sent, send_to_provider)
    return score_run(folder, judge=judge_settings)


def _replies(run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame, folder: Path) -> pd.DataFrame | None:
    """Return the replies of the run's judge, cached in the run folder."""
    if run.method.judge is None:
        return None
    judge = Judge(run.method.judge["model"], folder / "judge", run.method.judge.get("base_url"))
    queries = judge_queries(run, answers, questions)
    replies = judge.replies([query.request for query in queries])
    rows = [(query.question_id, query.sample, reply) for query, reply in zip(queries, replies, strict=True)]
    return pd.DataFrame(rows, columns=["question_id", "sample", "reply"])


class Judge:
    """A judge model behind an OpenAI-compatible server, with a cache of its replies."""

    def __init__(self, model: str, cache: Path, base_url: str | None = None) -> None:
        self.model = model.removeprefix("openai:")
        self._settings = Settings(base_url=server_address(self.model, base_url), in_flight=JUDGE_WORKERS)
        self._cache = ReplyCache(cache, {"model": self.model, "server": self._settings.base_url}, [], keeps_draws=True)

    def replies(self, queries: Sequence[JudgeRequest]) -> list[str | None]:
        """Return the judge's reply to each query, None if it gave none after all retries.

        The server is contacted only for queries that the cache lacks. Raises BadInput if it cannot
        be reached, refuses the key or the model, or stops answering.
        """
        requests = {each: _request(each) for each in queries}
        responses = self._cache.through(self._ask)(requests.values())
        texts = {(each.question_id, each.sample): each.text for each in responses if each.status == "answered"}
        return [texts.get((requests[each].question_id, each.turn)) for each in queries]

    def _ask(self, requests: Iterator[Request]) -> Iterator[Response]:
        # The server is contacted once a first query is missing from the cache, and not at all
        # otherwise.
        for request in requests:
            judge = OpenAIChat(self.model, self._settings, label=f"--judge {self.model}")
            yield from judge.generate(chain([request], requests))


def _request(query: JudgeRequest) -> Request:
    """Build the request of a query, with the query's content as its question id.

    Equal queries therefore share a reply.
    """
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
