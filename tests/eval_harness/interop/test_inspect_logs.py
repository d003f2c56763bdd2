"""Submitting logs of inspect-ai, written by inspect-ai itself in both of its formats.

Runs where inspect-ai is installed; `test_real_harnesses.py` runs it in that environment and also
compares the metrics.
"""

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    ModelOutput,
)

from eval_harness.derive.run_files import table_to_frame
from eval_harness.interop.exports import format_letters
from eval_harness.store.submit import submit_to_store
from tests.eval_harness.interop.test_answer_files import drawn
from tests.helpers import refused


def sample(question, completion, epoch=1):
    content = [ContentReasoning(reasoning="B? No."), ContentText(text=completion or "")]
    choice = ChatCompletionChoice(message=ChatMessageAssistant(content=content), stop_reason="stop")
    return EvalSample(
        id=question.question_id,
        epoch=epoch,
        input="?",
        choices=list(question.options),
        target=format_letters(question.answer),
        metadata={"question_id": question.question_id},
        output=ModelOutput(model="m", choices=[] if completion is None else [choice], time=0.5),
    )


def log(path, samples, status="success", metadata=None, limit=None):
    spec = EvalSpec(
        created="2026-11-23T10:00:00+00:00",
        task="medprobe/x",
        model="openai/m",
        dataset=EvalDataset(sample_ids=list(dict.fromkeys(row.id for row in samples))),
        config=EvalConfig(limit=limit, epochs=max(row.epoch for row in samples)),
        packages={"inspect_ai": "0.3.285"},
        metadata=metadata,
    )
    write_eval_log(EvalLog(status=status, eval=spec, samples=samples), path)
    return path


def test_log_with_metadata_is_submitted_without_options(phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    metadata = {"medprobe": {"benchmark": "mediconfusion", "data": str(data), "split": "test"}}
    file = log(tmp_path / "log.eval", [sample(*record) for record in drawn(data, 3)], metadata=metadata)
    done = submit_to_store(file, tmp_path / "store")
    assert done.submission.result.model.name == "openai/m" and done.new
    assert set(table_to_frame(done.submission.sent.answers)["reasoning"].dropna()) == {"B? No."}
    # Submitting the same log again changes nothing.
    assert not submit_to_store(file, tmp_path / "store").new


@pytest.mark.parametrize("form", ["eval", "json"])
def test_bad_logs_give_one_line_errors_and_nothing_is_stored(phantoms, tmp_path, form):
    data = phantoms / "mediconfusion"
    rows = [q for q, _ in drawn(data, 1)]
    good = [sample(q, "A") for q in rows]
    changed = [sample(q._replace(answer=[1 - q.answer[0]]), "A") for q in rows]
    turned = [sample(q._replace(options=list(q.options)[::-1]), "A") for q in rows]
    of_another = [sample(q, "yes") for q, _ in drawn(phantoms / "probmed", 1)]
    for number, (words, samples, changes) in enumerate(
        (
            ("answers 6 of 28 questions", good[:6], {}),
            ("another version of the dataset", changed, {}),
            ("options or their order differ", turned, {}),
            ("", of_another, {}),
            ("did not finish", good, {"status": "error"}),
            ("covers only a part", good, {"limit": 5}),
            (
                "another version of this dataset",
                good,
                {"metadata": {"medprobe": {"fingerprint": "v1-0"}}},
            ),
        )
    ):
        file = log(tmp_path / f"log{number}.{form}", samples, **changes)
        assert words in refused(submit_to_store, file, tmp_path / "store", "mediconfusion", "M", str(data))
    # A log that was cut while it was written.
    for cut in (10, 200):
        complete = log(tmp_path / f"log.{form}", good).read_bytes()
        (tmp_path / f"cut.{form}").write_bytes(complete[:-cut])
        assert "inspect-ai" in refused(
            submit_to_store,
            tmp_path / f"cut.{form}",
            tmp_path / "store",
            "mediconfusion",
            "M",
            str(data),
        )
    assert "--benchmark" in refused(submit_to_store, log(tmp_path / f"log.{form}", good), tmp_path / "store")
    assert not (tmp_path / "store").exists()
