"""Test what answers without the images: rules that see the text alone, and a language model."""

import hashlib
import json

import pytest

from curation.report.quality import BlindAsking, blind_metrics, measure_quality
from curation.writing.asking import AskSettings
from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.phantom_sources import write_sources
from eval_harness.records.request import Response
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from tests.curation.commands import curate
from tests.curation.model_server import model_server


@pytest.fixture
def source(phantoms):
    return phantoms / "mediconfusion"


def quality(source, out, url):
    output = curate("quality", source, "--out", out, "--model", "stand-in", "--base-url", url)
    return output, json.loads(out.with_suffix(".json").read_text())


def hash_letter(prompt):
    """Answer from the text alone, so that both images of a pair get the same answer."""
    return "AB"[hashlib.sha256(prompt.encode()).digest()[0] % 2]


def blind_score(numbers, metric):
    return numbers["blind_model"]["scores"][metric]["value"]


def test_a_model_with_one_answer_per_text_gets_no_pair(source, tmp_path):
    out = tmp_path / "q.html"
    with model_server(lambda prompt, times_asked: f"The answer is {hash_letter(prompt)}.") as (url, log):
        output, numbers = quality(source, out, url)
        request_count = len(log.requests)
        # A second call takes the replies from the journal.
        repeated_output, repeated_numbers = quality(source, out, url)
        assert len(log.requests) == request_count == 2 * numbers["of_pairs"]["pairs"]
    assert all("image_url" not in prompt for _, prompt in log.requests)
    assert repeated_numbers == numbers
    assert repeated_output == output
    # One answer for both images is right for one of them: half the questions, but no pair.
    assert [blind_score(numbers, name) for name in ("set_accuracy", "individual_accuracy", "confusion")] == [0, 50, 100]
    scores = numbers["blind_model"]["scores"]
    assert scores["set_accuracy"]["chance"] == 25
    assert scores["individual_accuracy"]["low"] <= 50 <= scores["individual_accuracy"]["high"]
    assert "stand-in without images: 50.0 % (chance 50.0)" in output
    assert "stand-in, shown no image" in out.read_text()
    assert not any("gives answers away" in line for line in numbers["warnings"])


@pytest.mark.parametrize(
    # A refusal is a wrong answer, while a reply without an answer has no score.
    ("reply", "accuracy", "warning"),
    [("I cannot answer this without the image.", 0, "count as wrong"), ("What a picture.", None, "it has no score")],
)
def test_refusals_are_counted_not_guessed(source, tmp_path, reply, accuracy, warning):
    with model_server(lambda prompt, times_asked: reply) as (url, _):
        _, numbers = quality(source, tmp_path / "q.html", url)
    assert blind_score(numbers, "invalid") == 100
    assert blind_score(numbers, "individual_accuracy") == accuracy
    assert numbers["blind_model"]["scores"]["confusion"]["value"] is None
    assert any("gave no answer" in line and warning in line for line in numbers["warnings"])


def test_a_model_that_memorized_the_answers_is_reported(source, tmp_path):
    questions = open_repository(source).questions("test").set_index("question_id")["answer"]

    # It looks the question's id up in the answer key.
    class ByHeart:
        name = "by heart"

        def generate(self, requests):
            for request in requests:
                yield Response(request.question_id, 0, "AB"[questions[json.loads(request.question_id)[2]][0]])

    report = measure_quality(source, blind=BlindAsking(ByHeart(), tmp_path / "blind.jsonl", AskSettings(temperature=0)))
    assert report.blind_model.scores["set_accuracy"]["value"] == 100
    assert any("by heart gets 100.0 % (individual accuracy)" in line for line in report.warnings())


@pytest.mark.parametrize("family", BENCHMARKS)
def test_a_blind_rule_has_the_score_of_the_harness(family, phantoms, tmp_path):
    folder = phantoms / family
    report = measure_quality(folder)
    run = run_evaluation(
        EvalConfig(family, "baseline:always-A", str(folder), split=report.split, out=tmp_path / "run")
    )[0]
    for metric in blind_metrics(family):
        assert report.rules["always the first option"][metric] == run.scores[metric].model_dump()
    assert report.questions == len(open_repository(folder).questions(report.split))


def test_a_text_that_gives_the_answer_away_is_reported(tmp_path):
    """The wording depends on the answer, so the questions about other images give it away."""
    write_sources("probmed", tmp_path / "source")
    rows = json.loads((tmp_path / "source" / "probmed.json").read_text())
    for row in rows:
        row["question"] = f"Is {'this' if row['answer'] == 'yes' else 'that'} shown?"
    (tmp_path / "source" / "probmed.json").write_text(json.dumps(rows))
    folder = build("probmed", source=tmp_path / "source", out=tmp_path / "data").folder
    report = measure_quality(folder)
    rule = "what is most often right for this text elsewhere in the set"
    assert next(iter(report.rules[rule].values()))["value"] == 100
    assert any(line.startswith(f"{rule} gets 100.0") for line in report.warnings())
    assert any("asked more than once" in line for line in report.warnings())
