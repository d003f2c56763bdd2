"""Two routes, one result: `eval --model recorded:FILE` and `submit FILE` give equal readings and
scores.

For every file format and every way in which an answer can end.
"""

import base64
import json
import random
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import encode_png
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import ANSWERS_FILE
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission
from tests.eval_harness.store.untrusted.test_other_harnesses import (
    default_questions,
    lmms_file,
    vlmevalkit_table,
)
from tests.helpers import write_lines
from tests.sampling import few

ANSWER_OUTCOMES = {
    "an answer": ({"status": "answered", "finish_reason": "stop"}, True),
    "nothing said of it": ({}, True),
    "with reasoning": ({"reasoning": "A? No.\nThen, B.", "seconds": 1.5}, True),
    "cut off": ({"finish_reason": "length"}, False),
    "cut off, in our own words": ({"status": "truncated"}, False),
    "held back": ({"status": "refused", "finish_reason": "content_filter"}, None),
    "held back, by its end alone": ({"finish_reason": "content_filter"}, None),
    "failed": ({"status": "failed"}, None),
    "cut off, in Gemini's words": ({"finishReason": "MAX_TOKENS"}, False),
    "cut off, in Anthropic's words": ({"stop_reason": "model_context_window_exceeded"}, False),
    "held back, in Anthropic's words": ({"stop_reason": "refusal"}, None),
    "failed, by its end alone": ({"finish_reason": "error"}, None),
}
"""How an answer ended -> (fields of its record; True: the text states an option, False: it is cut
before one, None: no text).
"""


def records(data, seed, samples):
    """Draw answers to most questions; some questions have no record."""
    rng = random.Random(seed)
    for row in default_questions(data).itertuples():
        for sample in range(samples):
            fields, states = ANSWER_OUTCOMES[rng.choice(list(ANSWER_OUTCOMES))]
            index = rng.randrange(len(row.options))
            letter = row.options[index] if row.question_type == "yes_no" else "ABCDEFGHIJ"[index]
            text = {
                True: f"The answer is {letter}.",
                False: 'The image shows, "to\tbegin" with,',
                None: None,
            }[states]
            # Leave one question in ten without a record.
            if rng.random() < 0.9 or sample:
                yield {"question_id": row.question_id, "sample": sample, "response": text} | fields


def in_table(lines):
    """Return records as a table, where a missing answer is an empty cell with a status."""
    frame = pd.DataFrame(lines)
    return frame.assign(response=frame["response"].fillna(""))


def as_json(path, lines):
    path.write_text(json.dumps(lines))
    return path


FILE_WRITERS = {
    "jsonl": write_lines,
    "json": as_json,
    "csv": lambda path, lines: in_table(lines).to_csv(path, index=False),
    "tsv": lambda path, lines: in_table(lines).to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda path, lines: in_table(lines).to_csv(path, index=False, sep=";"),
    "parquet": lambda path, lines: pd.DataFrame(lines).to_parquet(path),
    "xlsx": lambda path, lines: in_table(lines).to_excel(path, index=False),
}


def by_both(file, data, folder):
    """Return (answers, statuses, scores) of `eval` and of `submit`."""
    submitted = build_submission(file, data.name, "M", str(data))
    assert submitted.problems == []
    result, run = run_evaluation(EvalConfig(data.name, f"recorded:{file}", data=str(data), out=folder))
    columns = [
        "question_id",
        "sample",
        "response",
        "delivery",
        "finish_reason",
        "reasoning",
        "seconds",
    ]
    outcomes = []
    for content, derived in (
        ((run / ANSWERS_FILE).read_bytes(), result),
        (submitted.sent.answers, submitted.result),
    ):
        answers = table_to_frame(content)[columns]
        answers = answers[answers["delivery"] != "missing"]
        scores = {name: score.model_dump() for name, score in derived.scores.items()}
        outcomes.append((answers.to_dict("records"), derived.statuses, scores))
    return outcomes


@pytest.mark.parametrize("form", FILE_WRITERS)
@pytest.mark.parametrize(("seed", "samples"), few([(1, 1), (2, 2), (3, 1)]))
@pytest.mark.parametrize("benchmark", BENCHMARKS[:2])
def test_eval_and_submit_give_equal_answers_and_scores(phantoms, tmp_path, benchmark, form, seed, samples):
    data = phantoms / benchmark
    lines = list(records(data, seed, samples))
    file = tmp_path / f"answers.{form}"
    FILE_WRITERS[form](file, lines)
    by_eval, by_submit = by_both(file, data, tmp_path / "run")
    assert by_eval == by_submit
    write_lines(tmp_path / "plain.jsonl", lines)
    expected, _ = by_both(tmp_path / "plain.jsonl", data, tmp_path / "plain")
    # Statuses and scores only: a table stores a missing answer as an empty text.
    assert by_eval[1:] == expected[1:]
    # Every status occurs, or the comparison would be weak.
    assert all(expected[1][status] for status in ("answered", "truncated", "refused", "failed", "missing"))


@pytest.mark.parametrize("form", ["lmms", "xlsx", "tsv", "csv", "json"])
def test_eval_and_submit_read_harness_output_alike(phantoms, tmp_path, form):
    data = phantoms / "mediconfusion"
    rng = random.Random(form)
    answers = [(q, rng.choice(["A", "B", "Answer: B", None])) for q in default_questions(data).itertuples()]
    if form == "lmms":
        file = lmms_file(tmp_path, answers)
    else:
        file = tmp_path / f"M_medprobe-mediconfusion.{form}"
        table = vlmevalkit_table(data, tmp_path, answers)
        if form == "xlsx":
            table.to_excel(file, index=False)
        elif form == "json":
            table.to_json(file, orient="records")
        else:
            table.to_csv(file, index=False, sep="\t" if form == "tsv" else ",")
    by_eval, by_submit = by_both(file, data, tmp_path / "run")
    assert by_eval == by_submit
    assert by_eval[1]["failed"] == sum(text is None for _, text in answers)


@pytest.mark.sources
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_results_of_the_official_tsv_are_read_completely(sources, tmp_path):
    files = sorted((sources / "later_answers").rglob("*_openai_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    for number, file in enumerate(files):
        table = pd.read_excel(file, dtype=str, keep_default_na=False)
        if not number:  # the pictures are not published with the answers, so any distinct ones will do
            images = [
                base64.b64encode(encode_png(Image.new("RGB", (4, 4), (n // 256, n % 256, 7)))).decode()
                for n in range(4550)
            ]
            source_table = table.drop(columns=["image_path", "prediction", "hit", "log"]).assign(image=images)
            source_table.to_csv(tmp_path / "GMAI-MMBench_VAL.tsv", sep="\t", index=False)
            data = Path(build("gmai-mmbench", source=tmp_path, out=tmp_path / "data" / "gmai-mmbench").folder)
        by_eval, by_submit = by_both(file, data, tmp_path / f"run{number}")
        responses = {row["question_id"]: row["response"] for row in by_eval[0]}
        assert by_eval == by_submit
        assert len(responses) == 4550 and responses == dict(zip(table["index"], table["prediction"], strict=True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"index": 1, "response": "A"}', '{"question_id": "1", "response": "B"}'],
            "line 1: question '1' is not",
        ),
        (["not json"], "question_id"),
        (['{"response": "A"}'], "no `question_id`"),
        (['{"question_id": "1"}'], "no `response`"),
        ([""], "question_id"),
        (['[{"question_id": "1", "response": "A", "response": "B"}]'], "twice"),
        (["[" * 100_000], "nested too deeply"),
    ],
)
def test_eval_and_submit_refuse_bad_files_alike(phantoms, tmp_path, lines, message):
    data = phantoms / "mediconfusion"
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=message):
        run_evaluation(EvalConfig(data.name, f"recorded:{file}", data=str(data), out=tmp_path / "run"))
    with pytest.raises(BadInput, match=message):
        build_submission(file, data.name, "M", str(data)).check(file)
    assert not (tmp_path / "run").exists()
