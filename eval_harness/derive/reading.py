"""Read the answers of a run: by the rules of the reader or the paper's own reader, and by a judge model's replies where the rules read
nothing.

With `--permute` each sample is read with its options in the order shown, and its choice told in the question's own order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
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
from eval_harness.records.permutations import original_position, rotate_options, rotation
from eval_harness.records.result import DELIVERIES
from eval_harness.records.run import RunRecord

STATUS_BY_DELIVERY = {delivery: status for status, delivery in DELIVERIES.items()}
"""Delivery -> status of the request, as `read_answers` takes it."""
_NOT_READ = {status: delivery for status, delivery in DELIVERIES.items() if status != "answered"}
"""Status of a response that never came -> the rule that decides it."""


@dataclass(frozen=True)
class JudgeQuery:
    """The prompt for a judge model about the answer in row `row` of the table, and the parser of its reply."""

    row: int
    question_id: str
    sample: int
    query: JudgeRequest
    read: Callable[[str], Reading]


def read_due_answers(
    run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame, replies: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Every answer that was due, with the columns `choice`, `status`, `rule`, in the questions' order; and what the judge did.

    `answers`: as `answer_table.answer_frame`. `replies` (`question_id, sample, reply`) are used where the
    run has a judge and it was due: every response of free form (`ff`), else those that no rule could read. An answer without its reply
    stays unread. The report counts answers asked about, decided, with a reply that is neither an option nor "none"
    (`not_understood`), and without a reply (`failed`); None without a judge.
    Raises BadInput for an unknown question, extraction or benchmark format.
    """
    read = pd.concat(
        [_in_own_order(part, turned, turn) for part, turned, turn in _read_by_rules(run, answers, questions)],
        ignore_index=True,
    )
    report = None
    if run.method.judge is not None:
        read, report = _read_by_judge(run, read, questions, replies)
    order = {question_id: position for position, question_id in enumerate(questions["question_id"].astype(str))}
    rank = read["question_id"].map(order)
    return read.iloc[rank.argsort(kind="stable")].reset_index(drop=True) if run.request.permute else read, report


def judge_queries(run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame) -> list[JudgeQuery]:
    """The requests for the run's judge, from answers as `answer_table.answer_frame` returns them."""
    return _queries(run, read_due_answers(without_judge(run), answers, questions)[0], questions)


def complete_answers(answers: pd.DataFrame, questions: pd.DataFrame, samples: int) -> pd.DataFrame:
    """One row for each (question, sample) that was due, in the questions' order, with the `status` of its request; what is not there
    is `missing`."""
    due = pd.MultiIndex.from_product(
        [questions["question_id"].astype(str), range(samples)], names=["question_id", "sample"]
    )
    whole = answers.set_index(["question_id", "sample"]).reindex(due).reset_index()
    whole["response"] = whole["response"].fillna("")
    whole["delivery"] = whole["delivery"].fillna("missing")
    whole["status"] = whole["delivery"].map(STATUS_BY_DELIVERY)
    return whole


def option_counts(questions: pd.DataFrame) -> dict[str, int]:
    """Question id -> number of options."""
    return dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))


def with_judge(run: RunRecord, judge: dict[str, Any]) -> RunRecord:
    """The run as if it had been asked with this judge."""
    method = run.method.model_copy(update={"judge": judge})
    return run.model_copy(
        update={"method": method, "deviations": [said for said in run.deviations if said != NO_JUDGE_DEVIATION]}
    )


def without_judge(run: RunRecord) -> RunRecord:
    """The run as if without a judge: only rules read its answers, and a free-form run says so."""
    if run.method.judge is None:
        return run
    deviations = [*run.deviations, *([NO_JUDGE_DEVIATION] if run.method.name == "ff" else [])]
    return run.model_copy(
        update={
            "method": run.method.model_copy(update={"judge": None}),
            "deviations": list(dict.fromkeys(deviations)),
        }
    )


def _read_by_rules(
    run: RunRecord, answers: pd.DataFrame, questions: pd.DataFrame
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, int | None]]:
    """(answers read, the questions as shown, the sample whose order that is)."""
    whole = complete_answers(answers, questions, run.request.samples)
    family, extraction = run.benchmark.family, run.method.extraction or "ours"
    if not run.request.permute:
        yield read_responses(whole, questions, family, extraction), questions, None
        return
    for sample in range(run.request.samples):
        turned = _as_shown(questions, sample)
        yield read_responses(whole[whole["sample"] == sample], turned, family, extraction), turned, sample


def _as_shown(questions: pd.DataFrame, sample: int) -> pd.DataFrame:
    options = [rotate_options(options, rotation(sample, len(options))) for options in questions["options"]]
    return questions.assign(options=pd.Series(options, index=questions.index, dtype=object))


def _in_own_order(read: pd.DataFrame, turned: pd.DataFrame, sample: int | None) -> pd.DataFrame:
    """The choices of one sample, converted to the order of the question's options."""
    if sample is None:
        return read
    counts = option_counts(turned)
    choices = [
        sorted(original_position(int(position), rotation(sample, counts[name]), counts[name]) for position in choice)
        for name, choice in zip(read["question_id"], read["choice"], strict=True)
    ]
    return read.assign(choice=pd.Series(choices, index=read.index, dtype=object))


def _queries(run: RunRecord, read: pd.DataFrame, questions: pd.DataFrame) -> list[JudgeQuery]:
    """One query for each answer that is the judge's to read; the judge never sees the key."""
    free_form = run.method.name == "ff"
    due = {"answered", "irrelevant", "refused"} if free_form else {"irrelevant"}
    about = {
        str(row["question_id"]): (
            str(row["question"]),
            [str(each) for each in row["options"]],
            str(row["question_type"]),
        )
        for row in questions.to_dict("records")
    }
    found = []
    for row, (name, sample, status, response) in enumerate(
        zip(read["question_id"], read["sample"], read["status"], read["response"], strict=True)
    ):
        if status not in due or not response.strip():
            continue
        text, options, kind = about[name]
        if free_form:
            query = closeness_prompt(text, options, response, int(sample))
            reading: Callable[[str], Reading] = partial(read_closeness, extraction=run.method.extraction or "ours")
        else:
            turn = rotation(int(sample), len(options)) if run.request.permute else 0
            query = extraction_prompt(text, rotate_options(options, turn), response, kind)
            reading = partial(_read_turned, options=rotate_options(options, turn), kind=kind, turn=turn)
        found.append(JudgeQuery(row, name, int(sample), query, reading))
    return found


def _read_turned(reply: str, options: Sequence[str], kind: str, turn: int) -> Reading:
    reading = read_extraction(reply, options, kind)
    return replace(
        reading, choice=tuple(sorted(original_position(place, turn, len(options)) for place in reading.choice))
    )


def _read_by_judge(
    run: RunRecord, read: pd.DataFrame, questions: pd.DataFrame, replies: pd.DataFrame | None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    said = {}
    if replies is not None:
        said = {
            (str(name), int(sample)): reply
            for name, sample, reply in zip(replies["question_id"], replies["sample"], replies["reply"], strict=True)
            if isinstance(reply, str)
        }
    columns = {name: read[name].tolist() for name in ("choice", "status", "rule")}
    asked = _queries(run, read, questions)
    decided = failed = not_understood = 0
    for query in asked:
        reply = said.get((query.question_id, query.sample))
        if reply is None:
            failed += 1
            continue
        reading = query.read(reply)
        decided += bool(reading.choice)
        not_understood += reading.rule == NOT_UNDERSTOOD_RULE
        for name, value in (("choice", list(reading.choice)), ("status", reading.status), ("rule", reading.rule)):
            columns[name][query.row] = value
    done = read.assign(**{name: pd.Series(values, index=read.index, dtype=object) for name, values in columns.items()})
    report = (run.method.judge or {}) | {
        "asked": len(asked),
        "share": round(100 * len(asked) / len(read), 4) if len(read) else 0.0,
        "decided": decided,
        "not_understood": not_understood,
        "failed": failed,
    }
    return done, report


def read_responses(
    answers: pd.DataFrame, questions: pd.DataFrame, family: str, extraction: str = "ours"
) -> pd.DataFrame:
    """Read every response of a run: the same rows with the columns `choice`, `status`, `rule` filled.

    `answers`: `question_id, sample, response, status`, the status as the journal has it: what the server did. Perhaps also `scores` (one
    number per option, of which the highest is chosen) and `finish_reason`: what the output limit cut (`length`) is read only where it
    states its answer, else it is `truncated`.
    A row that is already `failed`, `missing` or `refused` stays so, with an empty choice. `extraction`: `ours`, or `official` (the
    paper's own).
    Raises BadInput for an unknown extraction, format or question id.
    """
    if extraction not in ("ours", "official"):
        raise BadInput(f"--extraction {extraction}: unknown. Available: ours, official.")
    if family not in BENCHMARKS:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(BENCHMARKS)}.")
    official = eval_spec(family).read_official
    ids = questions["question_id"].astype(str)
    question_of = {
        question: (tuple(options), str(kind))
        for question, options, kind in zip(ids, questions["options"], questions["question_type"], strict=True)
    }
    scores = answers["scores"].tolist() if "scores" in answers.columns else [None] * len(answers)
    statuses = answers["status"].tolist() if "status" in answers.columns else ["answered"] * len(answers)
    ends = answers["finish_reason"].tolist() if "finish_reason" in answers.columns else [None] * len(answers)
    seen: dict[tuple[object, ...], Reading] = {}
    readings: list[Reading] = []
    for question, response, status, values, end in zip(
        answers["question_id"].astype(str).tolist(), answers["response"].tolist(), statuses, scores, ends, strict=True
    ):
        if question not in question_of:
            raise BadInput(
                f"answers: {question!r} is not a question of this benchmark. Check the benchmark, split and ids."
            )
        options, kind = question_of[question]
        if status in _NOT_READ:
            readings.append(Reading((), status, _NOT_READ[status]))
        elif _is_scores(values, len(options)):
            readings.append(_highest(values))
        elif not isinstance(response, str):
            readings.append(Reading((), "failed", "no response"))
        else:
            key = (response, options, kind, end == "length")
            if key not in seen:
                seen[key] = (
                    official(response, options, kind)
                    if extraction == "official"
                    else read_choice(response, options, kind, end)
                )
            readings.append(seen[key])
    read = answers.copy()
    read["choice"] = pd.Series([list(reading.choice) for reading in readings], index=answers.index, dtype=object)
    read["status"] = [reading.status for reading in readings]
    read["rule"] = [reading.rule for reading in readings]
    return read


def _is_scores(values: object, count: int) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str) and len(values) == count > 0


def _highest(values: Sequence[float]) -> Reading:
    """The option with the highest score; none in a tie, or if a score is not a number."""
    if any(value is None or math.isnan(value) for value in values):
        return Reading((), "irrelevant", "option scores are no numbers")
    best = [position for position, value in enumerate(values) if value == max(values)]
    return (
        Reading((best[0],), "answered", "option scores")
        if len(best) == 1
        else Reading((), "irrelevant", "option scores tie")
    )
