"""Read the answers of a run: by rules or the paper's own reader, then by a judge model's replies.

The judge's replies are used only if the rules read nothing, except for free-form answers. With
`--permute` each sample is read with its options in the order shown, and the choice is mapped back
to the original option order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import FORMATS
from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.reader import Reading, read_choice
from eval_harness.reader.judge import (
    NO_JUDGE_DEVIATION,
    NOT_UNDERSTOOD_RULE,
    JudgeRequest,
    closeness_prompt,
    extraction_prompt,
    read_closeness,
    read_extraction,
)
from eval_harness.records.request import original_position, rotate_options, rotation
from eval_harness.records.result import DELIVERIES, RunRecord
from eval_harness.scores.grading import check_columns

STATUS_BY_DELIVERY = {delivery: status for status, delivery in DELIVERIES.items()}
"""Delivery -> request status, as `read_responses` expects it."""
_NOT_READ = {status: delivery for status, delivery in DELIVERIES.items() if status != "answered"}
"""Request status of a response that never arrived -> the rule recorded for it."""


@dataclass(frozen=True)
class JudgeQuery:
    """A request to the judge model about the answer in row `row`, and the parser of the reply."""

    row: int
    question_id: str
    sample: int
    request: JudgeRequest
    parse: Callable[[str], Reading]


def read_due_answers(
    run: RunRecord,
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    replies: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Read the answer to every (question, sample) of a run, missing ones included.

    A judge's replies are used for every free-form response (`ff`), and otherwise for answers that
    no rule could read. An answer stays unread if the judge did not reply.

    Args:
        run: The run record; its judge decides whether replies are used.
        answers: From `run_files.answer_frame`.
        questions: The questions asked.
        replies: Columns `question_id, sample, reply`.

    Returns:
        The answers in question order with the columns `choice`, `status`, `rule`; and the judge's
        report: how many answers were sent to the judge, decided, got a reply that is neither an
        option nor "none" (`not_understood`), or got no reply (`failed`). The report is None without
        a judge.

    Raises:
        BadInput: If a question, the extraction or the benchmark format is unknown.
    """
    due_answers = complete_answers(answers, questions, run.request.samples)
    extraction = run.method.extraction or "ours"
    readings = read_responses(due_answers, questions, run.benchmark.family, extraction, run.request.permute)
    if run.method.judge is None:
        return readings, None
    return _read_by_judge(run, readings, questions, replies)


def judge_queries(run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame) -> list[JudgeQuery]:
    """Return the requests for the run's judge.

    Args:
        run: The run record.
        answers: From `run_files.answer_frame`.
        questions: The questions asked.
    """
    return _queries(run, read_due_answers(with_judge(run, None), answers, questions)[0], questions)


def complete_answers(answers: pd.DataFrame, questions: pd.DataFrame, samples: int) -> pd.DataFrame:
    """Expand the answers to one row per (question, sample) of the run, with a request status.

    Args:
        answers: From `run_files.answer_frame`.
        questions: The questions asked.
        samples: Samples per question.

    Returns:
        The table in question order with the column `status`; answers that are absent are `missing`.
    """
    due_index = pd.MultiIndex.from_product(
        [questions["question_id"].astype(str), range(samples)], names=["question_id", "sample"]
    )
    completed = answers.set_index(["question_id", "sample"]).reindex(due_index).reset_index()
    completed["response"] = completed["response"].fillna("")
    completed["delivery"] = completed["delivery"].fillna("missing")
    completed["status"] = completed["delivery"].map(STATUS_BY_DELIVERY)
    return completed


def option_counts(questions: pd.DataFrame) -> dict[str, int]:
    """Return question id -> number of options."""
    return dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))


def with_judge(run: RunRecord, judge: dict[str, Any] | None) -> RunRecord:
    """Return the run record as if it had been requested with this judge.

    Args:
        run: The run record.
        judge: From `judge_record`; None for no judge, which a free-form run declares as a
            deviation.
    """
    if judge is not None:
        deviations = [deviation for deviation in run.deviations if deviation != NO_JUDGE_DEVIATION]
    else:
        declared = [NO_JUDGE_DEVIATION] if run.method.name == "ff" else []
        deviations = list(dict.fromkeys([*run.deviations, *declared]))
    method = run.method.model_copy(update={"judge": judge})
    return run.model_copy(update={"method": method, "deviations": deviations})


def _queries(run: RunRecord, readings: pd.DataFrame, questions: pd.DataFrame) -> list[JudgeQuery]:
    """Return one query per answer that the judge is to read; the judge never sees the key."""
    free_form = run.method.name == "ff"
    due_statuses = {"answered", "irrelevant", "refused"} if free_form else {"irrelevant"}
    question_by_id = {
        str(row["question_id"]): (
            str(row["question"]),
            [str(option) for option in row["options"]],
            str(row["question_type"]),
        )
        for row in questions.to_dict("records")
    }
    queries = []
    for row, (question_id, sample, status, response) in enumerate(
        zip(
            readings["question_id"],
            readings["sample"],
            readings["status"],
            readings["response"],
            strict=True,
        )
    ):
        # An empty response tells a judge nothing.
        if status not in due_statuses or not response.strip():
            continue
        text, options, question_type = question_by_id[question_id]
        if free_form:
            query = closeness_prompt(text, options, response, int(sample))
            reading: Callable[[str], Reading] = partial(read_closeness, extraction=run.method.extraction or "ours")
        else:
            # The judge sees the options in the order that the model saw.
            turn = rotation(int(sample), len(options)) if run.request.permute else 0
            query = extraction_prompt(text, rotate_options(options, turn), response, question_type)
            reading = partial(
                _read_turned,
                options=rotate_options(options, turn),
                question_type=question_type,
                turn=turn,
            )
        queries.append(JudgeQuery(row, question_id, int(sample), query, reading))
    return queries


def _read_turned(reply: str, options: Sequence[str], question_type: str, turn: int) -> Reading:
    """Read a judge's reply about rotated options, and map the choice back to the original order."""
    return _in_original_order(read_extraction(reply, options, question_type), turn, len(options))


def _in_original_order(reading: Reading, rotated_by: int, options: int) -> Reading:
    """Map a choice among rotated options back to the original option order."""
    if not rotated_by:
        return reading
    positions = sorted(original_position(position, rotated_by, options) for position in reading.choice)
    return replace(reading, choice=tuple(positions))


def _read_by_judge(
    run: RunRecord, readings: pd.DataFrame, questions: pd.DataFrame, replies: pd.DataFrame | None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    rows = () if replies is None else zip(replies["question_id"], replies["sample"], replies["reply"], strict=True)
    reply_by_answer = {(str(name), int(sample)): reply for name, sample, reply in rows if isinstance(reply, str)}
    queries = _queries(run, readings, questions)
    judged: dict[int, Reading] = {}
    for query in queries:
        reply = reply_by_answer.get((query.question_id, query.sample))
        if reply is not None:
            judged[query.row] = query.parse(reply)
    by_rules = zip(readings["choice"], readings["status"], readings["rule"], strict=True)
    final = [
        judged.get(row) or Reading(tuple(choice), status, rule) for row, (choice, status, rule) in enumerate(by_rules)
    ]
    report = (run.method.judge or {}) | {
        "asked": len(queries),
        "share": round(100 * len(queries) / len(readings), 4) if len(readings) else 0.0,
        "decided": sum(bool(reading.choice) for reading in judged.values()),
        "not_understood": sum(reading.rule == NOT_UNDERSTOOD_RULE for reading in judged.values()),
        "failed": len(queries) - len(judged),
    }
    return _with_readings(readings, final), report


def read_responses(
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    family: str,
    extraction: str = "ours",
    permuted: bool = False,
) -> pd.DataFrame:
    """Read every response of a run.

    Args:
        answers: Columns `question_id, response, status` (the request status). Optional: `scores`
            (one number per option; the highest is chosen) and `finish_reason` (`length`: only an
            explicit answer is read, else the response is `truncated`); with `permuted` also
            `sample`.
        questions: Columns `question_id, options, question_type`.
        family: Benchmark whose question format the questions have.
        extraction: `ours` or `official` (the paper's own reader).
        permuted: Each `sample` was shown its own rotation of the options; the choices returned
            refer to the original option order.

    Returns:
        The same rows with `choice`, `status`, `rule`. A row that is already `failed`, `missing` or
        `refused` keeps its status, with an empty choice.

    Raises:
        BadInput: If the extraction, the format or a question id is unknown.
    """
    if extraction not in ("ours", "official"):
        raise BadInput(f"--extraction {extraction}: unknown. Available: ours, official.")
    if family not in FORMATS:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(FORMATS)}.")
    official = official_reader(family) if extraction == "official" else None
    ids = questions["question_id"].astype(str)
    question_of = {
        question_id: (tuple(options), str(question_type))
        for question_id, options, question_type in zip(
            ids, questions["options"], questions["question_type"], strict=True
        )
    }
    cache: dict[tuple[object, ...], Reading] = {}
    readings: list[Reading] = []
    check_columns(answers, ["question_id", "response", *(["sample"] if permuted else [])], "answers")
    # An optional column that is not there is read as missing values.
    columns = ["question_id", "sample", "response", "status", "scores", "finish_reason"]
    table = answers.reindex(columns=columns).astype({"question_id": str})
    # Lists, because iterating over pandas' strings is several times slower.
    rows = zip(*(table[name].tolist() for name in columns), strict=True)
    for question_id, sample, response, status, option_scores, finish_reason in rows:
        if question_id not in question_of:
            raise BadInput(
                f"answers: {question_id!r} is not a question of this benchmark. Check the benchmark, split and ids."
            )
        options, question_type = question_of[question_id]
        turn = rotation(sample, len(options)) if permuted else 0
        shown_options = tuple(rotate_options(options, turn)) if turn else options
        if status in _NOT_READ:
            reading = Reading((), status, _NOT_READ[status])
        # `gd` and `ps` generate no text of their own: the option scores decide.
        elif _is_scores(option_scores, len(options)):
            reading = _highest(option_scores)
        elif not isinstance(response, str):
            reading = Reading((), "failed", "no response")
        else:
            # Short responses occur many times: read each distinct one only once.
            key = (response, shown_options, question_type, finish_reason == "length")
            if key not in cache:
                cache[key] = (
                    official(response, shown_options, question_type)
                    if official is not None
                    else read_choice(response, shown_options, question_type, finish_reason)
                )
            reading = cache[key]
        readings.append(_in_original_order(reading, turn, len(options)))
    return _with_readings(answers, readings)


def _with_readings(answers: pd.DataFrame, readings: Sequence[Reading]) -> pd.DataFrame:
    """Return the answers with the columns `choice`, `status`, `rule` of their readings."""
    table = answers.copy()
    # Lists need an object series: pandas would try to align them otherwise.
    table["choice"] = pd.Series([list(reading.choice) for reading in readings], index=answers.index, dtype=object)
    table["status"] = [reading.status for reading in readings]
    table["rule"] = [reading.rule for reading in readings]
    return table


def official_reader(family: str) -> Callable[[str, Sequence[str], str], Reading]:
    """Return the reader of a benchmark's authors. Raises BadInput if there is none."""
    reader = eval_spec(family).read_official
    if reader is None:
        raise BadInput(f"--extraction official: the authors of {family} provide no reader. Leave the option out.")
    return reader


def _is_scores(option_scores: object, n_options: int) -> bool:
    return (
        hasattr(option_scores, "__len__") and not isinstance(option_scores, str) and len(option_scores) == n_options > 0
    )


def _highest(option_scores: Sequence[float]) -> Reading:
    """Choose the option with the highest score; none if the highest tie or a score is NaN."""
    if any(value is None or math.isnan(value) for value in option_scores):
        return Reading((), "irrelevant", "option scores are no numbers")
    best_positions = [position for position, value in enumerate(option_scores) if value == max(option_scores)]
    return (
        Reading((best_positions[0],), "answered", "option scores")
        if len(best_positions) == 1
        else Reading((), "irrelevant", "option scores tie")
    )
