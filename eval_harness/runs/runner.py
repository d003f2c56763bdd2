"""Run a model on a benchmark: configuration -> plan -> ask -> read -> score -> result.

EvalConfig   the user's options                       config.py
Plan         questions, prompts, model, run.json      plan.py
begin_run    the run folder, new or resumed           here, run_folder.py
ask          requests -> answers in the journal       ask.py
score_run    journal -> answers -> scores -> files    here, derive/

To score a run, its journal becomes `answers.parquet`, the judge's replies become `judge.parquet`,
and `derive` makes the other files from these two. Scoring the same answers again gives the same
files, and the judge is not asked again, since its replies are kept in the run folder. See also:
what a judge is asked (`reader/judge.py`), which answers it reads (`derive/reading.py`).
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import encode_entry, replace_file
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from eval_harness.derive.derivation import Derived, derive, write_derived
from eval_harness.derive.reading import judge_queries, with_judge
from eval_harness.derive.run_files import (
    ANSWERS_FILE,
    ANSWERS_SCHEMA,
    DERIVED_FILES,
    JUDGE_FILE,
    JUDGE_SCHEMA,
    answer_frame,
    answer_row,
    check_all_asked,
    encode_table,
    sum_usage,
)
from eval_harness.models.http.chat_client import permit_sending, server_address
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Backend, Settings, json_description
from eval_harness.models.load import load_backend
from eval_harness.reader.judge import JudgeRequest, judge_record
from eval_harness.records.limits import printable_line
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Result, RunRecord, read_run
from eval_harness.runs.ask import ReplyCache, ask, make_sender
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import BackendLoader, Plan, comparison_arms, make_plan
from eval_harness.runs.run_folder import (
    MERGED_JOURNAL,
    Shard,
    archive_journals,
    folder_lock,
    make_run_folder,
    merge_journals,
    read_answer_journal,
    read_answer_records,
    read_run_questions,
    report_disk_errors,
    write_run,
)


def run_evaluation(
    config: EvalConfig, load: BackendLoader = load_backend, max_questions: int | None = None
) -> tuple[Result | None, Path]:
    """Run the model on the selected questions and write the run folder.

    A folder that holds a run with the same request is resumed.

    Args:
        config: the run's options.
        load: function from a `--model` argument to a back end.
        max_questions: ask only this many questions, to estimate the time for the rest.

    Returns:
        The result and the run folder. The result is None if questions are left, either because of
        `max_questions` or because other processes of the run have not finished.

    Raises:
        BadInput: anything that the user can fix.
    """
    plan, shard = make_plan(config, load), Shard.of_this_process()
    check_sending_allowed(plan)
    send = make_sender(plan)
    folder = config.out or Path("runs") / plan.run.run_id
    with report_disk_errors(folder):
        make_run_folder(folder)
        with shard.claim(folder):
            with folder_lock(folder):
                plan = begin_run(folder, plan, shard)
                journal = shard.open_journal(folder)
            with journal:
                generation, samples = plan.run.method.generation, plan.run.request.samples
                if samples > 1 and generation["temperature"] and plan.config.samples:
                    print(
                        f"--samples {samples}: answers are sampled at temperature {generation['temperature']}.",
                        file=sys.stderr,
                    )
                instances = shard.instances(plan.selection.questions, plan.instances)[:max_questions]
                answered_now = ask(plan, journal, instances, send)
            if answered_now:
                update_run_record(folder, plan.run, plan.backend)
            with folder_lock(folder):
                # Under the lock, so that exactly one process is the last to finish, and scores.
                is_finished = merge_journals(folder).issuperset(map(plan.key, plan.instances))
                return score_run(folder) if is_finished else None, folder


def evaluate_arms(config: EvalConfig, load: BackendLoader) -> tuple[Result | None, Path]:
    """Run a benchmark with the real images and in the arms that its metrics are compared with.

    The model is loaded once. Every arm is a run of its own, in a folder next to the main one, and
    is resumed independently. The arm without images comes last, because not every model accepts a
    question without an image.

    Args:
        config: the options of the run with the real images.
        load: a `CachingLoader`, so that all arms share one loaded model.

    Returns:
        The result and folder of the run with the real images.

    Raises:
        BadInput: anything that the user can fix, or a benchmark whose metrics have no arms.
    """
    arms = comparison_arms(make_plan(config, load))
    done = run_evaluation(config, load)
    for image in arms:
        out = config.out and config.out.with_name(f"{config.out.name}-{image}")
        run_evaluation(replace(config, image=image, out=out), load)
    return done


def begin_run(folder: Path, plan: Plan, shard: Shard) -> Plan:
    """Write `run.json`, or check that the existing one has the same request.

    With `--no-resume`, the journals in the folder are archived and the run starts over. Call inside
    `folder_lock`.

    Returns:
        The plan, with the creation time and deviations of the resumed run, if any.

    Raises:
        BadInput: the folder contains a different run, or `--no-resume` was given to one of several
            processes.
    """
    if not plan.config.resume:
        if shard.world > 1:
            raise BadInput(f"{folder}: --no-resume: a run of several processes cannot start over. Give another --out.")
        archive_journals(folder)
        for name in (ANSWERS_FILE, JUDGE_FILE, *DERIVED_FILES):
            (folder / name).unlink(missing_ok=True)
    has_answers = any(path.stat().st_size for path in folder.glob("answers*.jsonl"))
    # A record without answers, which no other process uses, may be replaced.
    if not (folder / "run.json").exists() or not (has_answers or shard.other_processes_alive(folder)):
        write_run(folder, plan.run, plan.selection.questions)
        return plan
    stored = read_run(folder)
    different = _differences(stored.request.model_dump(), plan.run.request.model_dump())
    if different:
        raise BadInput(
            f"{folder}: contains a different run: {'; '.join(different)}. Give another --out, or "
            "--no-resume to start over."
        )
    # The display name and the software versions may change when a run is resumed.
    deviations = list(dict.fromkeys([*plan.run.deviations, *stored.deviations]))
    run = plan.run.model_copy(update={"created_at": stored.created_at, "deviations": deviations})
    write_run(folder, run.model_copy(update={"environment": stored.environment}), plan.selection.questions)
    return replace(plan, run=run)


def _differences(stored: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return the differences between two requests, one entry per option."""
    stored, current = ({**request, "generation": None, **request["generation"]} for request in (stored, current))
    names = [name for name in dict.fromkeys([*current, *stored]) if stored.get(name) != current.get(name)]
    descriptions = {"model_digest": "the model's file, code or weights have changed"}
    return [descriptions.get(name, f"{name} {stored.get(name)!r} -> {current.get(name)!r}") for name in names]


def update_run_record(folder: Path, run: RunRecord, backend: Backend) -> None:
    """Add to run.json what became known only while the model ran (deviations, detected settings).

    `environment` describes the process that began the run. Any differences in a process that
    resumed the run or took part in it are recorded under `resumed_with`.
    """
    with folder_lock(folder):
        stored = read_run(folder)
        deviations = list(dict.fromkeys([*stored.deviations, *map(printable_line, backend.deviations)]))
        current = run.environment | json_description(backend)
        original = {name: value for name, value in stored.environment.items() if name != "resumed_with"}
        different = {name: value for name, value in current.items() if name not in original or original[name] != value}
        # Equal environments: this process began the run, or works exactly like the one that did.
        if original == run.environment:
            environment = stored.environment | current
        else:
            environment = stored.environment | ({"resumed_with": different} if different else {})
        updated = stored.model_copy(update={"deviations": deviations, "environment": environment})
        write_run(folder, updated, None)


# --- a part of a run ---


def keep_answered_cases(folder: Path) -> None:
    """Reduce an interrupted run to the cases whose questions were all asked; see `keep_cases`.

    Raises BadInput if there is no such case, or if a process is writing the run.
    """
    samples, answers = range(read_run(folder).request.samples), read_answer_records(folder)

    def is_asked(question: Mapping[Any, Any]) -> bool:
        return all((str(question["question_id"]), number) in answers for number in samples)

    keep_cases(folder, is_asked, "that were asked")


def keep_cases(folder: Path, is_kept: Callable[[Mapping[Any, Any]], bool], description: str) -> int:
    """Reduce a run to the cases all of whose questions are kept, and mark it as a selection.

    Args:
        folder: the run folder; its previous journals are archived.
        is_kept: whether to keep the question in this row.
        description: the end of a sentence that begins "only the 5 of 7 questions".

    Returns:
        The number of removed questions.

    Raises:
        BadInput: no case would be left, or a process is writing the run.
    """
    with Shard().claim(folder), folder_lock(folder):
        run, questions = read_run(folder), read_run_questions(folder)
        answers = read_answer_records(folder)
        kept_rows = pd.Series([is_kept(row) for row in questions.to_dict("records")], index=questions.index)
        is_complete = kept_rows.groupby(questions["case_id"]).transform("all")
        kept_questions = questions[is_complete].reset_index(drop=True)
        if is_complete.all():
            return 0
        if kept_questions.empty:
            raise BadInput(
                f"{folder}: no case consists only of questions {description}. Run it again, or delete the folder."
            )
        ids = set(kept_questions["question_id"].astype(str))
        selection_notes = [
            run.benchmark.selection,
            f"only the {len(kept_questions):,} of {len(questions):,} questions {description}",
        ]
        # The reduced run must not pass as complete, so its digests cover only what remains.
        fingerprint = fingerprint_questions(kept_questions)
        benchmark = run.benchmark.model_copy(
            update={
                "questions": len(kept_questions),
                "fingerprint": fingerprint,
                "facets": digest_facets(kept_questions),
                "asked": digest_prompts(kept_questions),
                "selection": "; ".join(filter(None, selection_notes)),
            }
        )
        request = run.request.model_copy(update={"fingerprint": fingerprint})
        archive_journals(folder)
        write_run(folder, run.model_copy(update={"benchmark": benchmark, "request": request}), kept_questions)
        replace_file(folder / MERGED_JOURNAL, b"".join(encode_entry(answers[key]) for key in answers if key[0] in ids))
        return len(questions) - len(kept_questions)


# --- scoring a run folder ---


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
    replace_file(folder / ANSWERS_FILE, encode_table(answers, ANSWERS_SCHEMA))
    if replies is not None:
        replace_file(folder / JUDGE_FILE, encode_table(replies, JUDGE_SCHEMA))
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


JUDGE_WORKERS = 8
"""Concurrent requests to the judge."""

JUDGE_REPLY_TOKENS = 1024
"""Output-token limit of the judge's reply; a reasoning judge gets more."""


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
