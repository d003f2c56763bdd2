"""From answers to a result: read the responses, score them, write `result.json` and `answers.parquet`.

Rescoring the same answers gives the same result, but for its time stamp. See also: extraction (`answers.py`), formulas (`scores/`), run
folders and their judges (`rescoring.py`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.files import replace_file
from eval_harness.answers import read_answers
from eval_harness.models.interface import storable
from eval_harness.records.result import DELIVERIES, Result
from eval_harness.runs.folder import Run, key_of
from eval_harness.runs.planning.requests import original, rotation, shown
from eval_harness.scores import Scored, score

Reread = Callable[[pd.DataFrame, pd.DataFrame], tuple[pd.DataFrame, dict[str, Any]]]
"""Reads answers that the rules have been through once more: (answers, questions) -> (answers, what `method.judge` says of it)."""

ANSWERS_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("sample", pa.int32()),
        ("response", pa.string()),
        ("choice", pa.list_(pa.int32())),
        ("status", pa.string()),
        ("rule", pa.string()),
        ("scores", pa.list_(pa.float64())),
        ("seconds", pa.float64()),
        ("delivery", pa.string()),
        ("reasoning", pa.string()),
        ("finish_reason", pa.string()),
        ("tokens_in", pa.int64()),
        ("tokens_out", pa.int64()),
    ]
)
"""Columns of `answers.parquet`; `scores` holds one number per option for the methods that score options. `delivery` is what the server
did (`results.DELIVERIES`), `status` what the response was read as."""

NO_JUDGE = "no judge: free-form answers were matched with the options by rules"
"""The deviation of a free-form run that no judge has read."""


def without_judge(run: Run) -> Run:
    """The run as if it had been asked without a judge: only rules read its answers, and of free-form ones that is said."""
    if run.method.judge is None:
        return run
    said = [*run.deviations, *([NO_JUDGE] if run.method.name == "ff" else [])]
    return run.model_copy(
        update={"method": run.method.model_copy(update={"judge": None}), "deviations": list(dict.fromkeys(said))}
    )


FRAME_COLUMNS = [
    *("question_id", "sample", "response", "status", "seconds", "scores"),
    *("reasoning", "finish_reason", "tokens_in", "tokens_out"),
]


SCORED_COLUMNS = ["question_id", "sample", "choice", "status"]
"""What `score` reads of answers."""


def answer_frame(journal: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Journal lines as a frame, one row per (question, sample): the last line of each counts."""
    records = {key_of(record): record for record in journal}
    rows = [
        {
            "question_id": question_id,
            "sample": sample,
            "response": _text(record["response"] or ""),
            "status": record["status"],
            "seconds": record.get("seconds"),
            "scores": record.get("scores"),
            "reasoning": _text(record.get("reasoning")),
            "finish_reason": _text(record.get("finish_reason")),
            "tokens_in": (record.get("usage") or (None, None))[0],
            "tokens_out": (record.get("usage") or (None, None))[1],
        }
        for (question_id, sample), record in records.items()
    ]
    return pd.DataFrame(rows, columns=FRAME_COLUMNS).astype(
        dict.fromkeys(("reasoning", "finish_reason", "tokens_in", "tokens_out"), object)
    )


def _text(value: Any) -> str | None:
    """A text as a store can hold it (a server may send lone surrogates escaped)."""
    return None if value is None else storable(str(value))


def make_result(
    run: Run,
    questions: pd.DataFrame,
    journal: pd.DataFrame,
    extraction: str,
    reread: Reread | None = None,
    scores: Scorer | None = None,
) -> tuple[Result, pd.DataFrame]:
    """The result of a run, and its answers with what was read out of each.

    `questions` and `journal` have one row per question and per (question, sample). Rows come out in the order of the questions, so
    the same answers given in another order make the same files. `reread` is a judge that reads what the rules leave unread;
    `scores` remembers the scores for another call. A question without an answer counts as `failed`.
    """
    order = {question_id: position for position, question_id in enumerate(questions["question_id"])}
    expected = pd.MultiIndex.from_product(
        [questions["question_id"], range(run.request.samples)], names=["question_id", "sample"]
    )
    complete = journal.set_index(["question_id", "sample"]).reindex(expected).reset_index()
    complete["response"] = complete["response"].fillna("").astype(str)
    complete["status"] = complete["status"].fillna("failed")
    complete["delivery"] = complete["status"].map(DELIVERIES)
    if run.request.permute:
        answers = _read_permuted(complete, questions, run.benchmark.family, extraction)
    else:
        answers = read_answers(complete, questions, run.benchmark.family, extraction)
    method = run.method.model_copy(update={"extraction": extraction})
    if reread is not None:
        answers, method.judge = reread(answers, questions)
    answers = answers.sort_values(
        by=["question_id", "sample"], key=lambda column: column.map(order) if column.name == "question_id" else column
    ).reset_index(drop=True)
    scored = (scores or Scorer()).of(run, questions, answers)
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=run.benchmark,
        model=run.model,
        method=method,
        scores=scored.scores,
        breakdown=scored.breakdown,
        statuses=scored.statuses,
        deviations=run.deviations,
        environment=run.environment | (_by_option_or_letter(answers, questions) if run.request.permute else {}),
        command=run.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return result, answers


def _counts(questions: pd.DataFrame) -> dict[Any, int]:
    """Question id -> how many options it has."""
    return dict(zip(questions["question_id"], questions["options"].map(len), strict=True))


def scores_of(run: Run, questions: pd.DataFrame, answers: pd.DataFrame) -> Scored:
    """The scores of a run's answers as they were read (`choice`, `status`)."""
    scored = score(run.benchmark.family, questions, answers)
    if run.request.permute:
        _letters_as_shown(scored, run.benchmark.family, questions, answers)
    return scored


class Scorer:
    """`scores_of`, computed once for the same answers: those that a submission is formed from, and those read back from its files."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, bool], pd.DataFrame, pd.DataFrame, Scored] | None = None

    def of(self, run: Run, questions: pd.DataFrame, answers: pd.DataFrame) -> Scored:
        how, read = (run.benchmark.family, run.request.permute), answers[SCORED_COLUMNS]
        if self._last is not None:
            last, asked, given, scored = self._last
            if how == last and (questions is asked or questions.equals(asked)) and read.equals(given):
                return scored
        scored = scores_of(run, questions, answers)
        self._last = how, questions, read, scored
        return scored


def _read_permuted(complete: pd.DataFrame, questions: pd.DataFrame, family: str, extraction: str) -> pd.DataFrame:
    """Answers of a `--permute` run: each sample is read with its options in the order shown, its choice told in the question's own."""
    parts = []
    counts = _counts(questions)
    for sample, given in complete.groupby("sample", sort=True):
        turn = int(str(sample))
        options = [shown(options, rotation(turn, len(options))) for options in questions["options"]]
        turned = questions.assign(options=pd.Series(options, index=questions.index, dtype=object))
        read = read_answers(given, turned, family, extraction)
        read["choice"] = [
            sorted(original(int(position), rotation(turn, counts[question]), counts[question]) for position in choice)
            for question, choice in zip(read["question_id"], read["choice"], strict=True)
        ]
        parts.append(read)
    return pd.concat(parts, ignore_index=True)


def _letters_as_shown(scored: Scored, family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> None:
    """Put the shares of the letters as they were shown into `scored`: those of the question's own order would hide a model that always
    says A, for each option is A once."""
    counts = _counts(questions)
    letters = [
        sorted((int(position) - rotation(int(sample), counts[question])) % counts[question] for position in choice)
        for question, sample, choice in zip(answers["question_id"], answers["sample"], answers["choice"], strict=True)
    ]
    turned = score(family, questions, answers.assign(choice=pd.Series(letters, index=answers.index, dtype=object)))
    pairs = [(scored.scores, turned.scores)]
    for facet, values in scored.breakdown.items():
        pairs += [(metrics, turned.breakdown[facet][value]) for value, metrics in values.items()]
    for mine, theirs in pairs:
        mine.update({name: shares for name, shares in theirs.items() if name.startswith("share_")})


def _by_option_or_letter(answers: pd.DataFrame, questions: pd.DataFrame) -> dict[str, Any]:
    """Is the answer the option or the letter? Shares (percent) of the questions answered in every option order: `same_option` chose the
    same option throughout, `same_letter` the same letter."""
    counts = _counts(questions)
    option = letter = total = 0
    for question, given in answers.groupby("question_id"):
        k = counts[question]
        rows = given[given["sample"] < k]
        if len(rows) < k or k < 2 or not all(len(choice) == 1 for choice in rows["choice"]):
            continue
        total += 1
        picks = [int(choice[0]) for choice in rows["choice"]]
        letters = [(pick - rotation(int(sample), k)) % k for pick, sample in zip(picks, rows["sample"], strict=True)]
        option += len(set(picks)) == 1
        letter += len(set(letters)) == 1
    share = {"same_option": option, "same_letter": letter}
    return {
        "permuted": {name: 100 * count / total if total else None for name, count in share.items()}
        | {"questions": total}
    }


def write_result(folder: Path, result: Result, answers: pd.DataFrame) -> None:
    """Write `answers.parquet`, then `result.json`; each appears whole or not at all."""
    replace_file(folder / "answers.parquet", answers_bytes(answers))
    replace_file(folder / "result.json", result.to_json().encode())


def answers_bytes(answers: pd.DataFrame) -> bytes:
    """The content of `answers.parquet`."""
    table = pa.Table.from_pylist(
        [{name: _plain(row[name]) for name in ANSWERS_SCHEMA.names} for row in answers.to_dict("records")],
        schema=ANSWERS_SCHEMA,
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """NaN, which pandas puts where there is nothing, back to None."""
    return None if isinstance(value, float) and math.isnan(value) else value
