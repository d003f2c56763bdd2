"""Fields that no answer gives: what `eval` never writes is refused, what cannot be checked is flagged, what it does write passes."""

import io
import json
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from eval_harness.records.fields import wrong_fields
from eval_harness.records.limits import FREE_BYTES, MOST_ANSWERS, most_bytes, wrong_free_fields
from eval_harness.records.result import STATUSES, Result
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.runner import evaluate
from eval_harness.submissions.checks.names import look_alike
from eval_harness.submissions.datasets import named_dataset
from eval_harness.submissions.examination import examine
from eval_harness.submissions.submission import Bundle
from eval_harness.submissions.submit import prepare, submit
from eval_harness.submissions.untrusted.files import MAX_RECORDS
from tests.eval_harness.submissions.honest import differences

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def honest(run, data):
    return prepare(run, data=str(data))


@pytest.fixture(scope="module")
def said(honest):
    """The result as JSON has it."""
    return json.loads(honest.bundle.result)


@pytest.fixture(scope="module")
def rows(honest):
    return pq.read_table(io.BytesIO(honest.bundle.answers)).to_pylist()


@pytest.fixture(scope="module")
def verdict(honest, data):
    """(problems, flags) of the honest files with another result or other rows."""
    schema = pq.read_schema(io.BytesIO(honest.bundle.answers))

    def judge(result=None, answers=None, text=None):
        buffer = io.BytesIO(honest.bundle.answers)
        if answers is not None:
            pq.write_table(pa.Table.from_pylist(answers, schema=schema), buffer := io.BytesIO())
        content = text or (json.dumps(result).encode() if result else honest.bundle.result)
        try:
            found = examine(Bundle(content, buffer.getvalue()), partial(named_dataset, data=str(data)))
        except BadInput as error:
            return [str(error)], []
        return found.problems, found.flags

    assert judge() == ([], [])
    return judge


def changed(said, path, value):
    copy = json.loads(json.dumps(said))
    *parents, last = path.split(".")
    inner = copy
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return copy


LIES = [
    ("created_at", st.text(max_size=20).filter(lambda text: not any(c.isdigit() for c in text))),
    ("created_at", st.datetimes(NOW.replace(tzinfo=None) + timedelta(days=3)).map(datetime.isoformat)),
    ("method.name", st.sampled_from(["best", "MC", "", "mc ", "=mc"])),
    ("source", st.builds(lambda text: {"citation": text}, st.text(max_size=9))),
    ("run_ids", st.lists(st.text(max_size=5), max_size=3)),
    ("method.shots", st.one_of(st.integers(max_value=-1), st.integers(min_value=60_001))),
    ("model.parameters", st.one_of(st.integers(max_value=-1), st.integers(min_value=1 << 53))),
    ("benchmark.selection", st.sampled_from(["", " ", "\n"])),
    ("statuses.answered", st.integers(max_value=-1)),
    ("statuses", st.text(max_size=20).filter(lambda name: name not in STATUSES).map(lambda name: {name: 0})),
    ("environment.x", st.integers(0, 99).map(lambda more: "x" * (FREE_BYTES + more))),
    ("environment.x", st.integers(min_value=(1 << 64) + 1).map(lambda number: {"y": [number]})),
    ("deviations", st.integers(1, 9).map(lambda k: ["nothing" * 900] * (45 * k))),
]


@pytest.mark.parametrize(("path", "values"), LIES, ids=[f"{path}-{k}" for k, (path, _) in enumerate(LIES)])
@settings(max_examples=20, deadline=None)
@given(data_=st.data())
def test_what_eval_never_writes_is_refused(said, path, values, data_):
    lie = Result.model_validate(changed(said, path, data_.draw(values)))
    assert list(wrong_fields(lie))


def test_it_is_refused_at_the_door(said, verdict):
    draw = random.Random(1)
    for path, value in (
        ("created_at", "9999-12-31T23:59:59-23:59"),
        ("method.name", "best"),
        ("method.shots", 1 << draw.randrange(20, 200)),
        ("environment", {"log": "y" * 7_000_000}),
        ("environment", {"n": draw.uniform(2.0, 9.0) * 1e20}),
    ):
        problems, _ = verdict(changed(said, path, value))
        assert len(problems) == 1, (path, problems)


@settings(max_examples=10, deadline=None)
@given(name=st.text(min_size=1, max_size=200), padding=st.integers(10_000, 7_000_000))
def test_nothing_rides_along_beside_the_scores(said, verdict, name, padding):
    """Labels without scores, statuses that nobody has, blanks between the fields."""
    if name not in said["breakdown"]:
        problems, _ = verdict(changed(said, "breakdown", said["breakdown"] | {name: {}}))
        assert problems
    text = json.dumps(said).replace("{", "{" + " " * (len(json.dumps(said)) * 3 + padding), 1)
    problems, _ = verdict(text=text.encode())
    assert "bytes" in problems[0]
    for number in ("1e999", "-1e400", "NaN"):
        problems, _ = verdict(
            text=json.dumps(changed(said, "environment", {"n": 1})).replace('"n": 1', f'"n": {number}').encode()
        )
        assert len(problems) == 1 and "which is no" in problems[0]


def test_how_an_interval_was_made_is_computed_too(said, verdict):
    name = next(iter(said["scores"]))
    problems, _ = verdict(changed(said, f"scores.{name}.interval_method", "exact by our own theory"))
    assert "interval_method" in problems[0]


@pytest.mark.parametrize(
    "change",
    [
        {"sample": None},
        {"rule": None},
        {"rule": "r" * 201},
        {"reasoning": "y" * (most_bytes(28) // 20)},
    ],
    ids=["no sample", "no rule", "a long rule", "gigabytes"],
)
def test_rows_that_no_version_writes_are_refused(rows, verdict, change):
    problems, _ = verdict(answers=[{**row, **change} for row in rows])
    assert problems


def test_what_no_reading_can_check_is_flagged(said, rows, verdict):
    for result, answers, words in (
        (said, [{**row, "finish_reason": "<b>" * 50} for row in rows], "finish_reason"),
        (changed(said, "method.name", "gd"), rows, "option scores"),
        (changed(said, "method.prompt", "my own"), rows, "no prompt"),
        (changed(said, "deviations", ["one"] * 31), rows, "deviations"),
    ):
        problems, flags = verdict(result, answers)
        assert not problems and any(words in flag for flag in flags), (words, problems, flags)


CLAIMS = ["verified", "Reproduced", "official", "SOTA", "published", "#1", "state-of-the-art"]
UNSAID = [
    (
        "model.name",
        st.builds(str.format, st.sampled_from(["GPT-4o {}", "{}: GPT-4o", "GPT_4o ({})"]), st.sampled_from(CLAIMS)),
    ),
    ("model.name", st.sampled_from(["Human", "3 radiologists", "Random", "By chance", "Guessing"])),
    ("model.name", st.builds("GPT-4o {}".format, st.sampled_from("\u2713\u2714\u2605\u2b50\U0001f3c6\U0001f947"))),
    ("model.name", st.integers(4, 30).map(lambda marks: "G" + "\u0337" * marks + "PT")),
    ("model.name", st.sampled_from(["\u1d33PT-4o", "GPT-4\u1d52", "\U0001d406PT", "\u24bcPT"])),
    ("model", st.floats(4, 50).map(lambda times: {"name": "Model 7B", "parameters": int(7e9 * times)})),
    ("model.parameters", st.integers(0, 999_999) | st.integers(10**14 + 1, (1 << 53) - 1)),
    ("model.snapshot_date", st.sampled_from(["best", "9999-12-31", "2024-99-01", "today"])),
    ("model.revision", st.sampled_from(["approved by the authors", "x" * 101, ""])),
    ("method.generation", st.builds(lambda v: {"temperature": v}, st.sampled_from([-1, 11, "0", True, [0]]))),
    ("method.generation", st.builds(lambda v: {"max_tokens": v}, st.sampled_from([0, 10**9, "many"]))),
    ("method.shots", st.integers(101, 60_000)),
    ("deviations", st.sampled_from(CLAIMS[:2]).map(lambda word: [f"{word} by the authors"])),
    ("environment", st.sampled_from([{"verified_by": "ORG"}, {"x": ["it was reproduced"]}])),
    ("command", st.sampled_from(["<script>alert(1)</script>", "python best.py", ""])),
    ("benchmark.revision", st.sampled_from(["main", "0" * 39, "junk"])),
]


@pytest.mark.parametrize(("path", "values"), UNSAID, ids=[f"{path}-{k}" for k, (path, _) in enumerate(UNSAID)])
@settings(max_examples=10, deadline=None)
@given(data_=st.data())
def test_what_only_a_store_can_say_and_what_no_run_has_is_flagged(honest, said, path, values, data_):
    from eval_harness.submissions.checks.plausibility import doubts

    lie = Result.model_validate(changed(said, path, data_.draw(values)))
    assert doubts(lie, honest.questions, honest.answers)


def test_honest_names_and_sizes_are_not_flagged():
    from eval_harness.records.result import Model
    from eval_harness.submissions.checks.names import odd_name

    named = {
        "Qwen2-VL-7B": 8_290_000_000,
        "8x7B MoE": 46_700_000_000,
        "Qwen3-30B-A3B": 30_500_000_000,
        "packed to 4 bits 7B": 3_900_000_000,
        "MedVLM\u00ae 7B": None,
        "\u0645\u062f\u0644 7B": None,
        "\u0e21\u0e35\u0e49": None,
    }
    for name, parameters in named.items():
        model = Model(name=name, parameters=parameters, revision="0" * 40, snapshot_date="2024-08")
        assert list(odd_name(model)) == [], name
    assert list(odd_name(Model(name="Random choice", kind="baseline", parameters=0))) == []


@settings(max_examples=10, deadline=None)
@given(
    text=st.sampled_from(["", "I cannot tell."]), delivery=st.sampled_from(["answered", "held back", "no response"]),
    left=st.integers(30, 100),
)  # fmt: skip
def test_wrong_answers_that_were_taken_out_are_flagged(honest, text, delivery, left):
    """Of a model that is right now and then, the wrong answers are said never to have come, or to have said nothing."""
    from eval_harness.submissions.checks.plausibility import doubts

    count = left + 20
    questions = honest.questions.iloc[[0] * count].assign(question_id=[str(n) for n in range(count)])
    key = [list(questions["answer"].iloc[0])] * left + [[]] * 20
    answers = honest.answers.iloc[[0] * count].assign(
        question_id=questions["question_id"].tolist(), choice=pd.Series(key, index=honest.answers.index[[0] * count]),
        response=["A"] * left + [text] * 20, delivery=["answered"] * left + [delivery] * 20,
    )  # fmt: skip
    found = doubts(honest.result, questions, answers)
    assert any("taken out" in flag for flag in found)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_method_that_its_answers_do_not_go_with_is_flagged(honest, seed):
    """Answers to a question with lettered options, said to be free-form ones; prompts of another method."""
    from eval_harness.prompts import PROMPTS
    from eval_harness.submissions.checks.plausibility import doubts

    draw = random.Random(seed)

    def flags(method, prompt, write):
        answers = honest.answers.assign(response=[write(draw) for _ in range(len(honest.answers))])
        told = honest.result.method.model_copy(update={"name": method, "prompt": prompt})
        return "; ".join(doubts(honest.result.model_copy(update={"method": told}), honest.questions, answers))

    letter = lambda draw: draw.choice(["A", "B.", "(b)", " **A** ", "A)\n"])  # noqa: E731
    text = lambda draw: draw.choice(["The left lung.", "a pleural effusion", "There is none"])  # noqa: E731
    assert "shows no letters" in flags("ff", "ff-default", letter)
    assert "letters" not in flags("ff", "ff-default", text) and "letters" not in flags("mc", "mc-0", letter)
    (name, methods) = draw.choice(
        [(name, p.methods) for (family, name), p in PROMPTS.items() if family == "mediconfusion"]
    )
    for method in ("mc", "gd", "ps", "ff"):
        assert ("is none of the method" in flags(method, name, text)) == (method not in methods)


@settings(max_examples=20, deadline=None)
@given(st.datetimes(datetime(1900, 1, 1), datetime(2035, 1, 1)))
def test_a_run_from_before_the_benchmarks_is_flagged(honest, day):
    from eval_harness.submissions.checks.plausibility import doubts

    made = honest.result.model_copy(update={"created_at": day.isoformat()})
    found = any("published by then" in flag for flag in doubts(made, honest.questions, honest.answers))
    assert found == (day.year < 2024)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), room=st.integers(1, 5_000), reason=st.sampled_from(["stop", "eos", "length", None]))
def test_answers_that_took_all_the_room_and_are_called_whole_are_flagged(honest, seed, room, reason):
    from eval_harness.submissions.checks.plausibility import doubts

    draw = random.Random(seed)
    cut = draw.random() < 0.5
    count = len(honest.answers)
    spent = [room if cut and number % 2 == 0 else draw.randrange(room) for number in range(count)]
    answers = honest.answers.assign(tokens_out=spent, finish_reason=reason)
    method = honest.result.method.model_copy(update={"generation": {"max_tokens": room}})
    found = doubts(honest.result.model_copy(update={"method": method}), honest.questions, answers)
    assert any("took all" in flag for flag in found) == (cut and reason in ("stop", "eos"))


@pytest.mark.parametrize("kind", ["metadata", "field metadata", "gap", "two columns of a name"])
def test_bytes_beside_the_rows_are_bounded(honest, verdict, kind, data):
    table = pq.read_table(io.BytesIO(honest.bundle.answers))
    if kind == "metadata":
        table = table.replace_schema_metadata({"notes": "x" * (10 << 20)})
    elif kind == "field metadata":
        fields = [field.with_metadata({"n": "y" * (1 << 20)}) for field in table.schema]
        table = table.cast(pa.schema(fields))
    elif kind == "two columns of a name":
        table = table.append_column("choice", table["choice"])
    pq.write_table(table, buffer := io.BytesIO(), compression="zstd")
    content = buffer.getvalue()
    if kind == "gap":  # between the last page and the footer, which says where the pages are
        size = int.from_bytes(content[-8:-4], "little") + 8
        content = content[:-size] + bytes(1 << 20) + content[-size:]
    with pytest.raises(BadInput, match=r"beside its rows|two columns of one name"):
        examine(Bundle(honest.bundle.result, content), partial(named_dataset, data=str(data)))


def test_texts_that_are_said_to_be_held_back_are_flagged(honest, rows):
    from eval_harness.submissions.checks.plausibility import doubts

    answers = honest.answers.copy()
    answers.loc[answers.index[:3], "delivery"] = "held back"
    assert any("held back" in flag for flag in doubts(honest.result, honest.questions, answers))


@pytest.mark.parametrize("letter", "\u3164\uffa0\u2800\u034f\ufe0f\u200d\u200c")
def test_letters_that_cannot_be_seen_make_no_other_name(letter):
    for name in (f"GPT-4o{letter}", f"GPT{letter}-4o"):
        assert look_alike(name) and len(look_alike(name, ["GPT-4o"])) == 2
    assert look_alike("\U0001f9d1\u200d\u2695\ufe0f") == [] == look_alike("\u0645\u06cc\u200c\u062f\u0644")


def test_a_baseline_that_is_nearly_perfect_is_flagged(data, tmp_path):
    from tests.eval_harness.submissions.submitting import questions_of, said
    from tests.helpers import write_lines

    answers = [{"question_id": row.question_id, "response": said(row, True)} for row in questions_of(data).itertuples()]
    path = write_lines(tmp_path / "answers.jsonl", answers)
    found = prepare(path, "mediconfusion", "baseline: mine", str(data), kind="baseline")
    assert any("perfect" in flag for flag in found.flags)


PLUG_IN = """
from eval_harness.records.request import Response
from eval_harness.records.result import Model

class Talkative:
    needs_images = False
    one_token = True
    deviations = []

    def __init__(self, settings):
        self.model = Model(name="talkative")

    def describe(self):
        return {described}

    def generate(self, requests):
        return [Response(request.question_id, request.sample, "A") for request in requests]
"""


@pytest.mark.parametrize(
    "described",
    ['{"log": "x" * 200_000}', '{"seed": 1 << 70}', '{"deep": [[{"n": -(1 << 80)}]]}', '{"x": 1e30}', "[1, 2]"],
    ids=str,
)
def test_eval_says_at_its_start_what_no_store_takes(data, tmp_path, described):
    path = tmp_path / "plug_in_large.py"
    path.write_text(PLUG_IN.format(described=described))
    with pytest.raises(BadInput, match=r"a store takes at most|beyond 2\^64|JSON cannot hold"):
        evaluate(EvalConfig("mediconfusion", f"{path}:Talkative", str(data), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


ODD_PLUG_IN = """
import enum, math, pathlib
import numpy as np
from eval_harness.records.request import Response
from eval_harness.records.result import Model

class Why(enum.Enum):
    STOP = 1

ODD = [
    dict(seconds=math.nan), dict(seconds=-0.5), dict(seconds=math.inf), dict(seconds=np.float32(0.5)), dict(seconds="soon"),
    dict(usage=(1.0, 2.5)), dict(usage=(np.int64(3), np.int64(4))), dict(usage=(None, 4)), dict(usage=(-1, 4)), dict(usage=(1 << 60, 4)),
    dict(usage=7), dict(finish_reason=Why.STOP), dict(finish_reason=3), dict(reasoning=["a"]), dict(reasoning="\\ud800"),
    dict(error=ValueError("x")),
]

class Careless:
    needs_images = False
    deviations = ["half of it: \\ud800"]

    def __init__(self, settings):
        self.model, self.asked = Model(name="careless", kind="open"), 0

    def describe(self):
        return {{1: pathlib.Path("/x"), "n": np.float32(2), "s": "\\ud800", "log": "x" * self.asked * 10_000}}

    def generate(self, requests):
        for number, request in enumerate(requests):
            self.asked += 1
            yield Response(request.question_id, np.int64(request.sample), {text}, **ODD[number % len(ODD)])

    def score(self, requests):
        for number, request in enumerate(requests):
            odd = [np.float32(-1), None, math.nan, 1 << 60, True][number % 5]
            yield Response(request.question_id, request.sample, "", scores=np.array([odd] * len(request.options)){cut})
"""


@pytest.mark.parametrize("method", ["mc", "gd"])
def test_what_a_careless_plug_in_answers_lands(data, tmp_path, method):
    """Numbers of other libraries, durations and tokens that are none, texts that no file can hold, a description that grows."""
    path = tmp_path / "plug_in_careless.py"
    path.write_text(ODD_PLUG_IN.format(text='["A", None, np.str_("B"), ""][number % 4]', cut=""))
    evaluate(EvalConfig("mediconfusion", f"{path}:Careless", str(data), method=method, out=tmp_path / "run"))
    done = submit(tmp_path / "run", tmp_path / "store", data=str(data))
    assert done.new and differences(tmp_path / "run", Path(done.location)) == []


@pytest.mark.parametrize(("text", "cut", "method"), [("3", "", "mc"), ('b"A"', "", "mc"), ("''", "[1:]", "gd")])
def test_what_is_no_answer_is_told_at_the_first_question(data, tmp_path, text, cut, method):
    path = tmp_path / "plug_in_wrong.py"
    path.write_text(ODD_PLUG_IN.format(text=text, cut=cut))
    with pytest.raises(BadInput, match=r"with (a text of type|\d scores for)"):
        evaluate(EvalConfig("mediconfusion", f"{path}:Careless", str(data), method=method, out=tmp_path / "run"))


@settings(max_examples=3, deadline=None)
@given(st.integers(0, FREE_BYTES // 2 - 20_000), st.integers(-(1 << 64), 1 << 64), st.integers(0, 10**6))
def test_what_eval_accepts_lands(data, tmp_path_factory, length, number, seed):
    workdir = tmp_path_factory.mktemp("accepted")
    path = workdir / f"plug_in_{seed}.py"
    path.write_text(PLUG_IN.format(described=f'{{"log": "x" * {length}, "seed": {number}, "nan": float("nan")}}'))
    evaluate(EvalConfig("mediconfusion", f"{path}:Talkative", str(data), out=workdir / "run"))
    assert submit(workdir / "run", workdir / "store", data=str(data)).new


def test_free_fields_are_measured_alike_in_every_script():
    for text in ("x", "\u7b54", "\U0001f642"):
        assert not list(wrong_free_fields({"prompt": text * (FREE_BYTES // 13)}))
        assert list(wrong_free_fields({"prompt": text * FREE_BYTES}))


def test_as_many_answers_as_eval_allows_are_read():
    assert MAX_RECORDS >= MOST_ANSWERS


def test_long_reasoning_lands(rows, verdict):
    """16 kB an answer and more in any script, of which nothing is read: letters of three bytes are three bytes."""
    long = [{**row, "reasoning": "\u6211\u60f3" * 20_000} for row in rows]
    assert verdict(answers=long) == ([], [])


def test_numbers_that_are_none_are_no_reason_to_refuse(said):
    lie = Result.model_validate(changed(said, "method.generation", {"temperature": 0.7, "top_p": None}))
    assert not list(wrong_fields(lie))
