"""Test the causes of a difference: planted ones are named with their points, the points add up, and
every output agrees.
"""

import json
import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

import medprobe
from benchmarks.scoring.why_simulation import (
    faultless_pair,
    is_named,
    lost,
    make_answers,
    other_key,
    planted_pair,
    redrawn,
    to_side,
    value_of,
)
from dataset_builders.benchmark_names import FORMATS
from dataset_builders.build import build
from eval_harness.benchmarks.gmai_mmbench import read_official
from eval_harness.reader import read_choice
from eval_harness.store.causes import explain
from eval_harness.store.slips import agreement_log_p
from tests.commands import medprobe as command
from tests.helpers import refused, write_lines
from tests.sampling import few


def check_sums(explained):
    total = sum(cause.points for cause in explained.causes) + explained.different_points
    assert total == pytest.approx(explained.a - explained.b, abs=1e-9)
    assert explained.low - 1e-3 <= explained.different_points <= explained.high + 1e-3


@pytest.mark.parametrize("seed", few(range(16), 2))
def test_one_planted_fault_is_named_first(seed):
    pair = planted_pair(random.Random(seed), 1)
    explained = explain(pair.a, pair.b)
    check_sums(explained)
    (kind,), (points,) = pair.kinds, pair.points
    if kind == "refused" and not explained.causes:
        # Up to seven refusals of one side alone may be chance (sign test, 1 %).
        assert pair.is_noisy or explained.n_different <= 7
        return
    assert is_named(kind, explained.causes[0].factor), (pair.kinds, pair.points, explained)
    if not pair.is_noisy:
        assert explained.causes[0].points == pytest.approx(points, abs=0.1)
        assert explained.different_points == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("seed", few(range(6)))
def test_exchanged_sides_change_only_the_sign(seed):
    pair = planted_pair(random.Random(1000 + seed), 2)
    forward, back = explain(pair.a, pair.b), explain(pair.b, pair.a)
    check_sums(forward)
    assert {cause.factor: cause.points for cause in forward.causes} == pytest.approx(
        {cause.factor: -cause.points for cause in back.causes}, abs=1e-9
    )
    assert (forward.different_points, forward.low, forward.high) == pytest.approx(
        (-back.different_points, -back.high, -back.low), abs=1e-3
    )


@pytest.mark.parametrize("seed", few(range(12)))
def test_nothing_is_named_without_a_fault(seed):
    pair = faultless_pair(random.Random(seed))
    explained = explain(pair.a, pair.b)
    check_sums(explained)
    assert explained.causes == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_points_are_the_mean_over_all_orders_of_exchange(seed):
    """The key, lost answers and the rest, with each intermediate run scored as a run of its own."""
    rng = random.Random(seed)
    base = replace(make_answers(rng, "gmai-mmbench", 0.6), style="{letter}")
    other = lost(rng, other_key(rng, redrawn(rng, base, 0.3, 0.6)))
    gone = [at for at in range(len(base.picks)) if at in other.replaced or at in other.missing]

    def run(changed):
        picks = list(other.picks if "answers" in changed else base.picks)
        for at in gone if "lost" not in changed else ():
            picks[at] = base.picks[at]
        has_lost = {"replaced": other.replaced, "missing": other.missing} if "lost" in changed else {}
        questions = other.questions if "key" in changed else base.questions
        return value_of(to_side(replace(base, picks=picks, questions=questions, **has_lost), "run"))

    points = dict.fromkeys(("key", "lost", "answers"), 0.0)
    orders = list(permutations(points))
    for order in orders:
        for at, name in enumerate(order):
            points[name] += (run(order[:at]) - run(order[: at + 1])) / len(orders)
    explained = explain(to_side(base, "first"), to_side(other, "second"))
    found = {cause.factor.split()[0]: cause.points for cause in explained.causes}
    assert found == pytest.approx({"key": points["key"], "answers": points["lost"]}, abs=1e-9)
    assert explained.different_points == pytest.approx(points["answers"], abs=1e-9)


def test_the_same_options_in_another_order_are_no_difference():
    rng = random.Random(4)
    base = make_answers(rng, "halt-medvqa", 0.6)
    orders = [rng.sample(range(5), 5) for _ in base.picks]
    rows = base.questions.to_dict("records")
    for row, order in zip(rows, orders, strict=True):
        row["options"], row["answer"] = [row["options"][at] for at in order], [order.index(row["answer"][0])]
    picks = [None if pick is None else order.index(pick) for pick, order in zip(base.picks, orders, strict=True)]
    other = replace(base, questions=pd.DataFrame(rows), picks=picks)
    explained = explain(to_side(base, "first"), to_side(other, "second"))
    assert (explained.causes, explained.different_points, explained.n_different) == ([], 0, 0)


def test_several_samples_are_compared_with_one():
    rng = random.Random(5)
    base = make_answers(rng, "mediconfusion", 0.6)
    one, *others = (to_side(redrawn(rng, base, share, 0.6), "run") for share in (0, 0.2, 0.4))
    several = pd.concat([side.answers.assign(sample=at) for at, side in enumerate([one, *others])])
    result = one.result.model_copy(deep=True)
    result.method.samples = 3
    result.scores["set_accuracy"].value = np.mean([value_of(side) for side in (one, *others)])
    explained = explain(one, replace(one, answers=several.sort_values(["question_id", "sample"]), result=result))
    check_sums(explained)
    assert explained.causes == [] and explained.different_points != 0


def test_a_score_of_an_older_version_is_said():
    side = to_side(make_answers(random.Random(6), "gmai-mmbench", 0.5), "run")
    result = side.result.model_copy(deep=True)
    result.scores["accuracy"].value += 2.5
    (cause,) = explain(replace(side, result=result), side).causes
    assert cause.points == pytest.approx(2.5) and "version" in cause.factor


def test_what_cannot_be_explained_is_one_line():
    rng = random.Random(7)
    side, other = (to_side(make_answers(rng, "gmai-mmbench", 0.5), name) for name in ("first", "second"))
    assert "has no answers" in refused(explain, side, replace(other, answers=pd.DataFrame()))
    assert "not a score" in refused(explain, side, side, "nonsense")
    moved = replace(other, questions=other.questions.assign(question="Another?"))
    assert "no question in common" in refused(explain, side, moved)
    hidden = replace(side, questions=side.questions.assign(answer=pd.Series([[]] * len(side.questions))))
    assert "hidden" in refused(explain, hidden, hidden)


def test_related_choices_are_told_from_common_habits():
    """Two models that prefer different letters are not a slip; a copy with moved letters is one."""
    rng = np.random.default_rng(1)
    n_options = np.full(400, 4)
    habits = [rng.choice(4, 400, p=weights) for weights in ([0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1])]
    assert agreement_log_p((habits[0] + 1) % 4, habits[0], habits[1], n_options) > np.log(1e-4)
    assert agreement_log_p(habits[0], (habits[0] - 1) % 4, habits[0], n_options) < np.log(1e-30)


def test_command_and_python_say_the_same_of_a_run_and_a_file(phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    run = medprobe.evaluate("mediconfusion", "baseline:oracle", data=data, out=tmp_path / "run")
    letters = ["B" if letter == "A" else "A" for letter in run.answers["key"]]
    records = [
        {"question_id": name, "response": letter}
        for name, letter in zip(run.answers["question_id"], letters, strict=True)
    ]
    file = write_lines(tmp_path / "answers.jsonl", records)
    table = medprobe.why(run, file)
    document = json.loads(command("compare", run.folder, file, "--format", "json", cwd=tmp_path).stdout)
    printed = command("compare", run.folder, file, cwd=tmp_path).stdout
    assert table["points"].sum() == pytest.approx(100) == document["difference"]
    assert [cause["factor"] for cause in document["causes"]] == table["factor"].tolist()[:-1]
    assert table["factor"][0].startswith("letters shifted by one") and table["points"][0] == pytest.approx(100)
    assert document["different_answers"]["points"] == pytest.approx(table["points"].iloc[-1])
    scores = medprobe.compare(run, file)
    assert [row["difference"] for row in document["scores"]] == pytest.approx(
        scores["difference"].tolist(), nan_ok=True
    )
    assert "why A - B = +100.00 points of set_accuracy" in printed
    assert f"+100.00       28  {table['factor'][0]}" in printed
    assert printed.index("why A - B") < printed.index("scores (percent")


def test_a_printed_number_is_matched_by_the_factors_that_give_it(phantoms, tmp_path):
    """Of the answers, 8 are like "(A)", which the paper's reader does not read, 12 are a bare
    letter, and 8 are empty. The factor that gives a printed number is named; a number that no
    factor gives is "not determinable".
    """
    data = phantoms / "mediconfusion"
    oracle = medprobe.evaluate("mediconfusion", "baseline:oracle", data=data, out=tmp_path / "oracle")
    answers = list(zip(oracle.answers["question_id"], oracle.answers["key"], strict=True))
    records = [
        {"question_id": name, "response": f"({key})" if at < 8 else key if at < 20 else ""}
        for at, (name, key) in enumerate(answers)
    ]
    file = write_lines(tmp_path / "answers.jsonl", records)
    run = medprobe.evaluate("mediconfusion", f"recorded:{file}", data=data, out=tmp_path / "run")
    assert run.result.scores["set_accuracy"].value == pytest.approx(100 * 10 / 14)
    table = medprobe.why(run, "42.86")
    assert table["factor"][0].startswith("reader ours | official")
    assert medprobe.why(run, 100.0)["factor"].tolist()[0] == "answers without a choice left out"
    assert "not determinable" in command("compare", "run", "97.31", cwd=tmp_path).stdout
    document = json.loads(command("compare", "run", "42.86", "--format", "json", cwd=tmp_path).stdout)
    assert [cause["factor"] for cause in document["causes"]] == table["factor"].tolist()
    assert 0 < document["matched_by_chance"] < 20
    assert document["difference"] == pytest.approx(100 * 10 / 14 - 42.86)


def test_a_paper_is_a_printed_number(phantoms, tmp_path):
    medprobe.evaluate("mediconfusion", "baseline:chance", data=phantoms / "mediconfusion", out=tmp_path / "run")
    paper = "published:GPT-4o/mediconfusion/mc/Table 1"
    printed = command("compare", "run", paper, cwd=tmp_path).stdout
    assert "18.75 in print" in printed and "scores (percent" in printed
    table, typed = medprobe.why(tmp_path / "run", paper), medprobe.why(tmp_path / "run", "18.75")
    pd.testing.assert_frame_equal(table, typed)


@pytest.mark.parametrize("benchmark", FORMATS)
def test_any_run_can_be_set_beside_a_printed_number(phantoms, tmp_path, benchmark):
    data = phantoms / benchmark
    if benchmark == "vqa":  # the format of any set, which has no second reader
        rows = [{"question": f"Is it {at}?", "options": ["a", "b"], "answer": "AB"[at % 2]} for at in range(12)]
        file, benchmark, data = write_lines(tmp_path / "set.jsonl", rows), "ours", tmp_path / "ours"
        build("vqa", name=benchmark, source=file, out=data, text_only=True)
    medprobe.evaluate(benchmark, "baseline:chance", data=data, out=tmp_path / "run")
    assert "48.9 in print" in command("compare", "run", "48.9", cwd=tmp_path).stdout


@pytest.mark.exhaustive
@pytest.mark.sources
def test_recorded_answers_of_a_real_model_are_explained_to_the_answer(sources):
    """HuatuoGPT-Vision-7B on GMAI-MMBench, read by VLMEvalKit's rules of 2024 and by ours: the
    points of the factor "reader" are recounted from both readers' choices.
    """
    files = sorted(sources.glob("later_answers/gmai_vlmevalkit/huatuo*/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    table = pd.read_excel(files[0], dtype=str, keep_default_na=False)
    options = [[text for text in texts if text] for texts in table[list("ABCDE")].to_numpy().tolist()]
    keys = ["ABCDE".index(letter) for letter in table["answer"]]
    base = make_answers(random.Random(1), "gmai-mmbench", 0.5)
    questions = pd.DataFrame(
        {
            "question_id": table["index"], "case_id": table["index"], "image_id": table["index"], "question": table["question"],
            "options": options, "answer": [[key] for key in keys], "question_type": "single", "task": table["clinical vqa task"],
        }
    )  # fmt: skip
    replaced = {
        at: (text.replace("{", "{{").replace("}", "}}"), "answered", None)
        for at, text in enumerate(table["prediction"])
    }
    recorded = replace(base, questions=questions, picks=[None] * len(table), replaced=replaced)
    explained = explain(to_side(replace(recorded, extraction="official"), "official"), to_side(recorded, "ours"))
    readings = [
        (read_official(text, texts, "single"), read_choice(text, texts, "single"))
        for text, texts in zip(table["prediction"], options, strict=True)
    ]
    right = [[reading.choice == (key,) for reading in pair] for pair, key in zip(readings, keys, strict=True)]
    n_right = np.sum(right, axis=0)
    assert round(explained.a, 2) == 48.90 == round(100 * n_right[0] / 4550, 2)
    (cause,) = explained.causes
    assert cause.factor == "reader" and explained.n_different == 0
    assert cause.points == pytest.approx(100 * (n_right[0] - n_right[1]) / 4550, abs=1e-9)
    distinct = {
        (name, text)
        for name, text, (official, ours) in zip(table["index"], table["prediction"], readings, strict=True)
        if (official.choice, official.status) != (ours.choice, ours.status)
    }
    assert cause.answers == len(distinct)
    gained, given_up = sum(not a and b for a, b in right), sum(a and not b for a, b in right)
    assert f"right only with A's: {given_up}, only with B's: {gained}" in cause.detail
