"""Read a file of answers in any format.

The output of other harnesses and of the papers' scripts is read as the records of a plain file, and
those are checked by `predictions.py`, so there is only one way to read answers. A server error that
a harness stored as text becomes a failed answer. Users read their own files on their own machine; a
server reads only plain files, in the sandbox.

- inspect-ai's logs, `.eval` files or their JSON form, read with its library (extra `inspect`). Logs
  of our own tasks (`interop/inspect_tasks.py`) name their benchmark, dataset and split.
- lmms-eval 0.7.3, the samples of our tasks (`<date>_samples_<task>.jsonl`): a line has `doc_id`,
  `target`, `resps` (the raw answer), `filtered_resps` (the answer without what lmms-eval takes for
  reasoning) and the output of the task's `process_results`, in which our tasks store the question
  id. There is no finish reason. If the server dies, lmms-eval exits with code 0 and stores a marker
  instead of an answer.
- VLMEvalKit e8e78f0, tables (`<model>_<dataset>.xlsx`, `.tsv`, `.csv`, `.json`) with `index`,
  `question` and `prediction`. Tables made from our TSV keep `question_id`; in the official
  GMAI-MMBench TSV, `index` is the question id. A spreadsheet of plain answers has the columns of
  any file of answers.
- ProbMed's scripts: records `{id, qa_type, response, gt_ans}`, as a list or as JSON Lines.
- MediConfusion's scripts: an object of pairs, `{pair: {answer: {im1: {full_answer}, im2: ...}}}` or
  `{pair: {image_1, image_2}}`.
- Plain answers as a JSON list of `{question_id, response}`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from dataset_builders.errors import BadInput, clip, first_line, require
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.schema import LETTERS
from eval_harness.answer_files.predictions import (
    Predictions,
    check_predictions,
    format_letters,
    journal_record,
    read_predictions,
)
from eval_harness.answer_files.untrusted import (
    LocatedRecord,
    ProblemList,
    Record,
    format_names,
    iter_json_lines,
    open_text,
    parse_json,
    parse_object,
    select_answer_fields,
)
from eval_harness.records.request import normalize_finish_reason

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ModelOutput

LocatedAnswer = tuple[str, Any, Record]
"""(location in the file, question id, record of the answer)."""

Description = tuple[str | None, str | None, str | None, str | None]
"""Benchmark, model, dataset and split; None if unknown."""


class Reader(NamedTuple):
    """How the files of one harness are recognised and read.

    Attributes:
        recognises: Returns whether the harness wrote a file.
        iter_answers: Yields each answer. The record's `target` is the answer key that the harness
            was given.
        is_whole: Whether a file must answer every question; else missing answers count as wrong.
        describe: Returns the benchmark, model, dataset and split that a file names; None if the
            format names none of them.
    """

    recognises: Callable[[Path], bool]
    iter_answers: Callable[[Path, pd.DataFrame, ProblemList], Iterator[LocatedAnswer]]
    is_whole: bool = True
    describe: Callable[[Path], Description] | None = None


def find_reader(path: Path) -> Reader | None:
    """Return the reader for a file; None for a plain file of answers, and for what is no file."""
    return next((reader for reader in READERS if path.is_file() and reader.recognises(path)), None)


def read_answer_file(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read the answers to the questions of a split from a file of any format.

    Args:
        path: The file of answers.
        questions: The questions of the split (at least `question_id`, `options`, `answer`).

    Returns:
        The valid answers and the problems of the records, as `read_predictions` does.

    Raises:
        BadInput: If the file cannot be read at all, or is the output of a harness for other
            questions; lists all such problems.
    """
    reader = find_reader(path)
    if reader is None:
        return read_predictions(path, questions)
    problems = ProblemList()
    records = list(_answers(reader, path, questions, problems))
    problems.check(path)
    return check_predictions(records, questions, problems)


def _answers(reader: Reader, path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield the answers of a harness's file with their locations, as records of a plain file.

    Two things are reported in `problems`: answers to another version of the dataset, and an
    incomplete run. A harness asks all questions of a task, so a question without an answer was left
    out on purpose. (A plain file may answer only some questions.)
    """
    answered_ids: set[str] = set()
    targets_by_id = dict(
        zip(
            questions["question_id"].astype(str),
            questions["answer"].map(format_letters),
            strict=True,
        )
    )

    must_be_complete = reader.is_whole
    for location, question_id, record in reader.iter_answers(path, questions, problems):
        # Records with a target come from a harness, which asks all questions of a task.
        must_be_complete = must_be_complete and "target" in record
        expected_target, target = targets_by_id.get(str(question_id)), record.pop("target", None)
        if expected_target and isinstance(target, str) and target != expected_target:
            problems.add(
                location,
                f"its target is {clip(target)}, the dataset's is {expected_target}: another version of the dataset",
            )
            continue
        answered_ids.add(str(question_id))
        # Defaults come first, so that the record's own fields override them.
        yield location, {"sample": 0, "response": None} | record | {"question_id": str(question_id)}

    answered_count, question_count = len(answered_ids & targets_by_id.keys()), len(targets_by_id)
    if must_be_complete and 0 < answered_count < question_count:
        problems.add(
            None,
            f"answers {answered_count:,} of {question_count:,} questions; only a run of the whole "
            "split can be scored (leave out the harness's --limit)",
        )


# --- inspect-ai ---

SKIPPED_SAMPLE_FIELDS = {"messages", "events", "store"}
"""Sample fields that are not loaded: large, and not needed for scoring."""


def _is_inspect_log(path: Path) -> bool:
    """Return True for an inspect-ai log: a `.eval` file, or JSON with the first fields of a log."""
    if path.suffix.lower() == ".eval":
        return True
    with path.open("rb") as file:
        head = file.read(4096).lstrip()
    return head.startswith(b"{") and all(name in head for name in (b'"eval"', b'"version"', b'"status"'))


def _read_log_header(path: Path) -> "EvalLog":
    """Read a log without its samples.

    Raises:
        BadInput: If the log is damaged, or the evaluation did not finish.
    """
    require("inspect_ai")
    from inspect_ai.log import read_eval_log

    try:
        log = read_eval_log(path, header_only=True)
    except Exception as error:  # inspect-ai raises various exceptions for files that are not logs
        raise _damaged_log(path, error) from None

    if log.status != "success":
        raise BadInput(
            f"this evaluation did not finish (its status is {clip(log.status)}). Finish it with "
            "`inspect eval-retry`, then give the new log.",
            path,
        )

    return log


def _iter_log_samples(path: Path) -> "Iterator[EvalSample]":
    """Yield the samples of a log.

    Raises:
        BadInput: If the log is damaged.
    """
    from inspect_ai.log import read_eval_log_samples

    try:
        yield from read_eval_log_samples(path, resolve_attachments=True, exclude_fields=SKIPPED_SAMPLE_FIELDS)
    except Exception as error:  # see _read_log_header
        raise _damaged_log(path, error) from None


def _damaged_log(path: Path, error: Exception) -> BadInput:
    """Make the error for a log that cannot be read."""
    reason = first_line(error) or type(error).__name__
    return BadInput(
        f"damaged inspect-ai log ({reason}). Give the log that `inspect eval` wrote, a .eval file or its JSON form.",
        path,
    )


def _describe_inspect_log(path: Path) -> Description:
    """Return the benchmark, model, dataset and split of a log.

    Logs of other tasks than ours give only the model.

    Raises:
        BadInput: If the log is damaged, unfinished, or covers a part of the split.
    """
    log = _read_log_header(path)
    metadata = _task_metadata(log)
    omitted_part = metadata.get("left_out") or ("inspect's --limit" if log.eval.config.limit is not None else None)
    if omitted_part:
        raise BadInput(
            f"this evaluation covers only a part ({clip(omitted_part)}). Only a run of the whole split can be scored.",
            path,
        )

    return metadata.get("benchmark"), log.eval.model or None, metadata.get("data"), metadata.get("split")


def _task_metadata(log: "EvalLog") -> dict[str, Any]:
    """Return the metadata that our tasks write; empty for other logs."""
    metadata = (log.eval.metadata or {}).get("medprobe")
    return metadata if isinstance(metadata, dict) else {}


def _inspect_answers(
    path: Path, questions: pd.DataFrame, problems: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the answer of every sample.

    Args:
        path: The log.
        questions: The questions of the split.
        problems: Receives an entry if the log is of another dataset version or options differ.

    Yields:
        (location, question id, journal record with `target`).
    """
    fingerprint = _task_metadata(_read_log_header(path)).get("fingerprint")
    if fingerprint is not None and fingerprint != fingerprint_questions(questions):
        problems.add(None, f"asked questions of another version of this dataset (fingerprint {clip(fingerprint)})")
        return

    options_by_id = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    # inspect-ai may reorder options (shuffle): letters are only valid in the dataset's order.
    for number, sample in enumerate(_iter_log_samples(path), 1):
        location, question_id = f"sample {number}", sample.metadata.get("question_id", sample.id)
        expected_options = options_by_id.get(str(question_id))
        if expected_options is not None and sample.choices is not None and sample.choices != list(expected_options):
            problems.add(
                location,
                "its options or their order differ from the dataset's, so answer letters would mean something else",
            )
            continue
        # Epochs count from 1, our samples from 0.
        record = {"sample": sample.epoch - 1, "target": sample.target}
        yield location, question_id, record | parse_inspect_output(sample.output, sample.error is not None)


def parse_inspect_output(output: "ModelOutput", failed: bool) -> dict[str, Any]:
    """Parse a model's output.

    Args:
        output: The output of one sample.
        failed: True if the sample ended with an error.

    Returns:
        Journal fields `response`, `status` (failed, refused or answered), `finish_reason`,
            `reasoning`, `seconds`.
    """
    choice = output.choices[0] if output.choices else None
    if failed or output.error is not None or choice is None:
        empty_fields = dict.fromkeys(("response", "finish_reason", "reasoning"))
        return empty_fields | {"status": "failed", "seconds": output.time}

    content = choice.message.content
    reasoning = [part.reasoning for part in content if part.type == "reasoning"] if isinstance(content, list) else []
    reason = normalize_finish_reason(choice.stop_reason)
    return {
        "response": choice.message.text,
        "status": "refused" if reason == "content_filter" else "answered",
        "finish_reason": reason,
        "reasoning": "\n".join(reasoning) or None,
        "seconds": output.time,
    }


# --- lmms-eval ---

TASK_IDS_KEY = "medprobe_answer"
"""The key under which our tasks store their ids in a line."""


def _is_lmms_eval(path: Path) -> bool:
    """Return True if the first line is an lmms-eval sample."""
    try:
        with path.open("rb") as file:
            first_record = parse_object(file.readline(), constants=True)
    except (OSError, ValueError):
        return False
    return {"doc_id", "target", "filtered_resps"} <= set(first_record)


def _lmms_eval_answers(path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield (location, question id, journal record) for every line.

    A line of another task is reported as a problem.
    """
    for location, line in iter_json_lines(path, problems):
        ids = line.get(TASK_IDS_KEY)
        question_id = ids.get("question_id") if isinstance(ids, dict) else None
        if question_id is None:
            problems.add(
                location,
                f"has no {TASK_IDS_KEY}.question_id: not made with the tasks of `medprobe export-lmms-eval`",
            )
            continue
        record = journal_record(line.get("resps") or line.get("filtered_resps"))
        yield location, question_id, record | {"target": line.get("target")}


# --- VLMEvalKit ---

LETTER_ANSWER = re.compile(r"\W*(?:(?:the )?answer(?: is)?\b)?\W*([A-J])\b\W*(.*?)\W*", re.DOTALL)
"""A letter alone ("B.", "the answer is B"), or a letter followed by the text of its option."""


def _is_vlmevalkit_table(path: Path) -> bool:
    """Return True for a spreadsheet, or a TSV, CSV or JSON list with `index` and `prediction`."""
    if path.suffix.lower() == ".xlsx":
        return True
    with path.open("rb") as file:
        head = file.readline(1 << 16)
        head += file.read(1 << 12) if head.startswith(b"[") else b""
    return {b"index", b"prediction"} <= set(re.split(rb"\W+", head)) and not head.startswith(b"{")


def _vlmevalkit_answers(path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield (location, question id, journal record) for every row.

    Args:
        path: The table.
        questions: The questions of the split.
        problems: Unused; part of the reader interface.

    Raises:
        BadInput: If the table cannot be read, or lacks ids of these questions or a text column.
    """
    yes_no_questions = questions[questions["question_type"] == "yes_no"]
    yes_no_options = dict(zip(yes_no_questions["question_id"].astype(str), yes_no_questions["options"], strict=True))
    table = _read_table(path)
    ids = set(questions["question_id"].astype(str))
    # In a table made from our TSV, `index` is only a row number: prefer question_id.
    id_columns = [
        name for name in ("question_id", "index") if name in table.columns and not ids.isdisjoint(table[name])
    ]
    text_column = next((name for name in ("prediction", "response") if name in table.columns), None)
    if not id_columns or text_column is None:
        raise BadInput(
            "lacks the columns question_id and prediction, or answers other questions (it has "
            f"{format_names(list(table.columns))}). `medprobe export-tsv` writes a TSV for VLMEvalKit; "
            "in GMAI-MMBench's official TSV, `index` is the question's id.",
            path,
        )

    # Row 1 of a spreadsheet is the header.
    for number, row in enumerate(table.to_dict("records"), 2):
        location = f"row {number}"
        if text_column == "response":
            fields = {name: value or None for name, value in select_answer_fields(row).items()}
            yield location, row[id_columns[0]], fields | {text_column: row[text_column]}
        else:
            answer = journal_record(_spell_out_letter(row[text_column], yes_no_options.get(row[id_columns[0]], ())))
            yield location, row[id_columns[0]], answer | {"target": row.get("answer") or None}


def _spell_out_letter(response: str, options: Sequence[str]) -> str:
    """Add the option's text to a letter: VLMEvalKit asks yes/no questions as multiple choice.

    Any other answer is returned unchanged.

    >>> _spell_out_letter("B.", ["yes", "no"]), _spell_out_letter("(A) Yes", ["yes", "no"])
    ('B (no)', 'A (yes)')
    >>> _spell_out_letter("A mass.", ["yes", "no"])
    'A mass.'
    """
    match = LETTER_ANSWER.fullmatch(response)
    index = LETTERS.index(match[1]) if match else len(options)
    if match is None or index >= len(options) or match[2].casefold() not in ("", options[index].casefold()):
        return response
    return f"{match[1]} ({options[index]})"


def _read_table(path: Path) -> pd.DataFrame:
    """Read a table as text; from a spreadsheet (extra `vlmevalkit`), read the first sheet."""
    read_options: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    if path.suffix.lower() == ".xlsx":
        require("openpyxl")
    try:
        if path.suffix.lower() == ".xlsx":
            return pd.read_excel(path, **read_options)
        content = path.read_text(encoding="utf-8-sig")
        if content.startswith("["):
            return pd.DataFrame(parse_json(content, constants=True)).fillna("").astype(str)
        return pd.read_csv(path, sep="\t" if "\t" in content.partition("\n")[0] else ",", **read_options)
    except Exception as error:  # the exception for a damaged file depends on the library
        reason = first_line(error) or type(error).__name__
        raise BadInput(f"cannot be read as a table of predictions ({reason}).", path) from None


# --- the papers' scripts, and JSON lists ---


def _is_paper_output(path: Path) -> bool:
    """Return True for a JSON document, and for JSON Lines of ProbMed's script."""
    with path.open("rb") as file:
        head = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"["):
        return True
    if not head.startswith(b"{"):
        return False
    try:
        first_record = parse_object(head.split(b"\n")[0], constants=True)
    except ValueError:
        # Not JSON: the first line of an indented document, or a line longer than what was read.
        return head.split(b"\n")[0].strip() == b"{" or len(head) == 1 << 16

    return ("qa_type" in first_record and "question_id" not in first_record) or _is_pairs(first_record)


def _paper_answers(path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield (location, question id, record) for every answer.

    Args:
        path: The file.
        questions: The questions of the split.
        problems: Receives the entries that are not answers.

    Raises:
        BadInput: If the file is not JSON.
    """
    options_by_id = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    for location, entry_name, record in _records(path, problems):
        if not isinstance(record, dict):
            problems.add(location, "is not a JSON object. Each entry must be one answer.")
        elif entry_name is not None and {"answer", "image_1", "image_2"} & record.keys():
            yield from _pair(location, entry_name, record, problems)
        elif "qa_type" in record and "id" in record and "question_id" not in record:
            yield from _probing(location, record, options_by_id, problems)
        elif "response" in record and (record.get("question_id") is not None or record.get("index") is not None):
            question_id = record.get("question_id")
            yield (
                location,
                record.get("index") if question_id is None else question_id,
                select_answer_fields(record),
            )
        else:
            problems.add(
                location,
                "not an answer: it needs question_id and response, or the fields of a paper's script",
            )


def _records(path: Path, problems: ProblemList) -> Iterator[tuple[str, str | None, Any]]:
    """Yield (location, entry name or None, entry) of a JSON document or of JSON Lines."""
    with open_text(path, "\n") as file:
        text = file.read()
    try:
        document = parse_json(text, constants=True)
    except ValueError as error:
        if "\n{" not in text:
            raise BadInput(f"cannot be read as JSON ({str(error)[:200]}). Write it again.", path) from None
        yield from ((location, None, record) for location, record in iter_json_lines(path, problems))
        return

    # The document is a single record.
    if isinstance(document, dict) and not _is_pairs(document):
        document = [document]
    entries = enumerate(document, 1) if isinstance(document, list) else document.items()
    for entry_name, record in entries:
        is_named = isinstance(document, dict)
        yield (
            f"entry {clip(entry_name) if is_named else entry_name}",
            str(entry_name) if is_named else None,
            record,
        )


def _is_pairs(document: Any) -> bool:
    """Return True for MediConfusion's object of pairs: every value is an object."""
    return isinstance(document, dict) and bool(document) and all(isinstance(part, dict) for part in document.values())


def _probing(
    location: str, record: Record, options_by_id: dict[str, Any], problems: ProblemList
) -> Iterator[LocatedAnswer]:
    """Yield the answer of a ProbMed record.

    Its truth is given as a letter if it is one of the options.
    """
    id_parts = [record.get("image_type"), record["id"], record["qa_type"]]
    if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in id_parts[1:]):
        problems.add(location, "id and qa_type must be strings")
        return

    # ProbMed's dataset prefixes ids with the image type; some output files do not.
    candidate_ids = ["-".join(map(str, id_parts)), "-".join(map(str, id_parts[1:]))]
    question_id = next(
        (question_id for question_id in candidate_ids if question_id in options_by_id),
        candidate_ids[1],
    )
    options = [str(option).lower() for option in options_by_id.get(question_id, ())]
    truth = record.get("gt_ans")
    truth_text = str(truth).strip().lower().rstrip(".")
    target = LETTERS[options.index(truth_text)] if truth_text in options else truth
    yield location, question_id, select_answer_fields(record) | {"target": target}


def _pair(location: str, pair: str, record: Record, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield the two answers of a MediConfusion pair (question ids `<pair>-1` and `<pair>-2`)."""
    answer = record.get("answer")
    for side in (1, 2):
        side_answer: Any = record
        response_key = f"image_{side}"
        if isinstance(answer, dict):
            side_answer, response_key = answer.get(f"im{side}"), "full_answer"
        if not isinstance(side_answer, dict) or response_key not in side_answer:
            problems.add(
                location,
                f"has no answer to image {side} (answer.im{side}.full_answer, or image_{side})",
            )
        else:
            yield (
                location,
                f"{pair}-{side}",
                select_answer_fields(side_answer) | {"response": side_answer[response_key]},
            )


READERS = (
    Reader(_is_inspect_log, _inspect_answers, describe=_describe_inspect_log),
    Reader(_is_lmms_eval, _lmms_eval_answers),
    Reader(_is_vlmevalkit_table, _vlmevalkit_answers),
    Reader(_is_paper_output, _paper_answers, is_whole=False),
)
"""All readers; the first that recognises a file reads it."""
