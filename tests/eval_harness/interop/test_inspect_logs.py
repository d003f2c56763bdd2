"""Logs of inspect-ai go to `submit` as they come. Run where inspect-ai is installed: `test_inspect_ai.py` does so in its environment.

Generated: answers of every benchmark, written by inspect-ai itself in both its formats, beside the same answers in a plain file.
"""

import random

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.answer_table import frame_of
from eval_harness.interop.convert import prepare_any, submit_any
from eval_harness.interop.harness_file import letters_of
from tests.helpers import refused, write_lines

TEXTS = ("{letter}", "The answer is {letter}.", "I cannot tell.", "", "{letter}) {text}")


def drawn(data, seed):
    """(question, response or None where nothing came) of every question of the default split."""
    chance, repository = random.Random(seed), open_repository(data)
    split = "validation" if "validation" in repository.splits else repository.splits[0]
    for row in repository.questions(split).itertuples():
        index = chance.randrange(len(row.options))
        letter = row.options[index] if row.question_type == "yes_no" else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
        text = chance.choice(TEXTS).format(letter=letter, text=row.options[index])
        yield row, None if chance.random() < 0.1 else text


def sample(question, said, epoch=1):
    content = [ContentReasoning(reasoning="B? No."), ContentText(text=said or "")]
    choice = ChatCompletionChoice(message=ChatMessageAssistant(content=content), stop_reason="stop")
    return EvalSample(
        id=question.question_id,
        epoch=epoch,
        input="?",
        choices=list(question.options),
        target=letters_of(question.answer),
        metadata={"question_id": question.question_id},
        output=ModelOutput(model="m", choices=[] if said is None else [choice], time=0.5),
    )


def log(path, samples, status="success", metadata=None, limit=None):
    spec = EvalSpec(
        created="2026-11-23T10:00:00+00:00",
        task="medprobe/x",
        model="openai/m",
        dataset=EvalDataset(sample_ids=list(dict.fromkeys(each.id for each in samples))),
        config=EvalConfig(limit=limit, epochs=max(each.epoch for each in samples)),
        packages={"inspect_ai": "0.3.285"},
        metadata=metadata,
    )
    write_eval_log(EvalLog(status=status, eval=spec, samples=samples), path)
    return path


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_same_answers_are_the_same_numbers(phantoms, tmp_path, benchmark):
    data = phantoms / benchmark
    answers = list(drawn(data, 1))
    plain = write_lines(
        tmp_path / "ours.jsonl", [{"question_id": q.question_id, "response": said} for q, said in answers]
    )
    expected = prepare_any(plain, benchmark, "Model A", str(data))
    for form in ("eval", "json"):
        found = prepare_any(
            log(tmp_path / f"log.{form}", [sample(*each) for each in answers]), benchmark, "M", str(data)
        )
        assert found.problems == []
        assert found.result.scores == expected.result.scores
        assert found.result.statuses["failed"] == sum(said is None for _, said in answers)
        assert list(found.readings()["status"]) == list(expected.readings()["status"])


def test_a_log_names_model_and_benchmark_itself_and_lands(phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    ours = {"medprobe": {"benchmark": "mediconfusion", "data": str(data), "split": "test"}}
    file = log(tmp_path / "log.eval", [sample(*each) for each in drawn(data, 3)], metadata=ours)
    done = submit_any(file, tmp_path / "store")
    assert done.submission.result.model.name == "openai/m" and done.new
    assert set(frame_of(done.submission.sent.answers)["reasoning"].dropna()) == {"B? No."}
    assert not submit_any(file, tmp_path / "store").new


def test_epochs_are_samples(phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    rows = [q for q, _ in drawn(data, 1)]
    samples = [sample(q, "A" if epoch == 1 else "B", epoch) for epoch in (1, 2) for q in rows]
    found = prepare_any(log(tmp_path / "log.eval", samples), "mediconfusion", "M", str(data))
    assert found.problems == [] and found.result.method.samples == 2
    assert found.result.scores["individual_accuracy"].value == 50 and found.result.scores["set_accuracy"].value == 0


@pytest.mark.parametrize("form", ["eval", "json"])
def test_bad_logs_are_one_line_and_nothing_lands(phantoms, tmp_path, form):
    data = phantoms / "mediconfusion"
    rows = [q for q, _ in drawn(data, 1)]
    good = [sample(q, "A") for q in rows]
    other = [sample(q._replace(answer=[1 - q.answer[0]]), "A") for q in rows]
    turned = [sample(q._replace(options=list(q.options)[::-1]), "A") for q in rows]
    of_another = [sample(q, "yes") for q, _ in drawn(phantoms / "probmed", 1)]
    for number, (words, samples, more) in enumerate(
        (
            ("answers 6 of 28 questions", good[:6], {}),
            ("another version of the dataset", other, {}),
            ("other options, or in another order", turned, {}),
            ("", of_another, {}),
            ("did not finish", good, {"status": "error"}),
            ("asked a part", good, {"limit": 5}),
            ("another version of it", good, {"metadata": {"medprobe": {"fingerprint": "v1-0"}}}),
        )
    ):
        file = log(tmp_path / f"log{number}.{form}", samples, **more)
        assert words in refused(submit_any, file, tmp_path / "store", "mediconfusion", "M", str(data))
    for cut in (10, 200):
        whole = log(tmp_path / f"log.{form}", good).read_bytes()
        (tmp_path / f"cut.{form}").write_bytes(whole[:-cut])
        assert "inspect-ai" in refused(
            submit_any, tmp_path / f"cut.{form}", tmp_path / "store", "mediconfusion", "M", str(data)
        )
    assert "--benchmark" in refused(submit_any, log(tmp_path / f"log.{form}", good), tmp_path / "store")
    assert not (tmp_path / "store").exists()
