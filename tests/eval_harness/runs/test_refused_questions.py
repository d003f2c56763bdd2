"""Every run ends by itself, with a score or one line, whatever questions or models do; nothing is asked twice or lost.

Generated: which questions fail in which of six ways, how large batches are, and whether and when the model dies.
"""

import json
import random
import re
from collections import Counter

import pytest
from PIL import Image

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.models.load import load_backend
from eval_harness.models.plug_in import load_plug_in
from eval_harness.records.request import Request, Response
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.refusals import IN_A_ROW
from eval_harness.runs.resume import keep_asked
from eval_harness.runs.runner import evaluate
from eval_harness.runs.scoring import score_run
from eval_harness.store.submit import prepare
from tests.eval_harness.models.tiny_families import make
from tests.helpers import refused

QUESTIONS = 28  # of the drawn MediConfusion
FAULTS = ("raises", "raises once", "number", "silent", "malformed", "bad image")
WHY = {
    "raises": "RuntimeError: refused",
    "number": "TypeError: it gave 7 instead of a Response",
    "silent": "ValueError: it gave no response",
    "malformed": "the model answered with a text of type int",
    "bad image": "OSError: cannot decode",
}


class Faulty:
    """Answers A in batches of `size`; what `faults` names fails in that way; from answer number `dies_after` on everything raises."""

    def __init__(self, seed, faults, size, dies_after=None):
        from eval_harness.records.result import Model

        self.model, self.needs_images, self.one_token, self.deviations = Model(name="faulty"), False, True, []
        self.sees_prompts, self.is_api, self.takes_stream, self.template_hash = True, False, False, None
        self.several_images, self.describe = True, dict
        self.chance, self.faults, self.size, self.dies_after = random.Random(seed), faults, size, dies_after
        self.delivered, self.raised = Counter(), set()

    def generate(self, requests):
        for start in range(0, len(requests), self.size):
            batch = requests[start : start + self.size]
            if self.dies_after is not None and self.delivered.total() >= self.dies_after:
                raise RuntimeError("CUDA error: device-side assert triggered\nmore")
            for each in batch:
                fault = self.faults.get(each.question_id)
                if fault == "raises" or (fault == "raises once" and each.question_id not in self.raised):
                    self.raised.add(each.question_id)
                    raise RuntimeError("refused")
                if fault == "bad image":
                    raise OSError("cannot decode")
            for each in self.chance.sample(batch, len(batch)):
                fault = self.faults.get(each.question_id)
                if fault == "number":
                    yield 7
                elif fault == "malformed":
                    yield Response(each.question_id, each.sample, 7)
                elif fault != "silent":
                    self.delivered[each.question_id] += 1
                    yield Response(each.question_id, each.sample, "A")


def journal(folder):
    return [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]


@pytest.fixture
def config(phantoms, tmp_path):
    return EvalConfig(
        benchmark="mediconfusion", model="faulty.py:F", data=str(phantoms / "mediconfusion"), out=tmp_path / "run"
    )


@pytest.fixture
def names(config):
    from eval_harness.records.selection import select_questions

    return list(select_questions("mediconfusion", config.data, None).questions["question_id"])


def drawn(seed, names):
    chance = random.Random(seed)
    share = chance.choice([0.03, 0.2, 0.5])
    faults = {name: chance.choice(FAULTS) for name in names if chance.random() < share}
    if chance.random() < 0.3:  # neighbours are refused alike
        first = chance.randrange(QUESTIONS // 2)
        faults |= dict.fromkeys(names[first : first + IN_A_ROW + 2], chance.choice(FAULTS))
    dies = chance.choice([None, None, chance.randrange(QUESTIONS)])
    return faults, chance.choice([1, 4, 16]), dies


@pytest.mark.parametrize("seed", range(40))
def test_a_run_ends_with_a_score_or_one_line_and_goes_on(seed, config, names):
    faults, size, dies = drawn(seed, names)
    broken = {name: fault for name, fault in faults.items() if fault != "raises once"}
    first = Faulty(seed, faults, size, dies)
    try:
        result, folder = evaluate(config, lambda model, settings: first)
    except BadInput as stopped:
        assert dies is not None or len(broken) > QUESTIONS // 2
        assert "\n" not in str(stopped)
        assert "device-side assert" in str(stopped) or any(why in str(stopped) for why in WHY.values())
        assert "Traceback" in (config.out / "error.txt").read_text()
        left = {record["question_id"] for record in journal(config.out)}
        if left < set(names):
            assert "never asked" in refused(score_run, config.out)
            assert "never asked" in refused(prepare, config.out, data=config.data)
    else:
        found = {record["question_id"]: record for record in journal(folder)}
        assert len(found) == len(journal(folder)) == QUESTIONS, "nothing lost, nothing twice"
        if dies is None:
            assert {name for name, record in found.items() if record["status"] == "failed"} == broken.keys()
            assert all(found[name]["error"].startswith(WHY[fault]) for name, fault in broken.items())
            assert result.statuses["failed"] == len(broken)
    answered = {record["question_id"] for record in journal(config.out) if record["status"] == "answered"}
    again = Faulty(seed, {}, size)
    result, folder = evaluate(config, lambda model, settings: again)
    assert result.statuses["failed"] == 0
    assert not answered & again.delivered.keys(), "what was answered is not asked again"
    assert {record["question_id"] for record in journal(folder) if record["status"] == "answered"} == set(names)


def test_a_model_that_answers_nothing_stops_soon(config):
    class Dead(Faulty):
        calls = 0

        def generate(self, requests):
            Dead.calls += 1
            raise ZeroDivisionError("always")

    assert "has stopped answering" in refused(evaluate, config, lambda model, settings: Dead(0, {}, 4))
    assert Dead.calls < 6 * IN_A_ROW
    assert "ZeroDivisionError" in (config.out / "error.txt").read_text()


def test_an_interrupted_run_becomes_one_of_the_cases_that_were_asked(config):
    """Never-asked questions do not count as failed: no score until the run is completed or marked."""
    evaluate(config, lambda model, settings: Faulty(0, {}, 4), first=9)
    assert "19 of 28 answers were never asked" in refused(score_run, config.out)
    keep_asked(config.out)
    result = score_run(config.out)
    assert result.benchmark.selection == "only the 8 of 28 questions that were asked"
    assert result.statuses == {"answered": 8} | {name: 0 for name in result.statuses if name != "answered"}
    assert len(journal(next(config.out.glob(".before-*")))) == 9
    submission = prepare(config.out, data=config.data)
    assert not submission.problems
    assert any("a choice of its own" in flag for flag in submission.flags)


def picture(width, height):
    import io

    buffer = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.slow
def test_questions_that_a_processor_or_a_model_refuses_fail_alone(tmp_path):
    """An image of 1 x 400 pixels, which Qwen's processor does not take; a prompt that is longer than a model's positions."""
    from eval_harness.models.local.transformers_vlm import TransformersVLM
    from eval_harness.runs.refusals import Sender

    def request(number, image, prompt="Which side?"):
        return Request(str(number), 0, prompt, image, ("a", "b"), "single", max_tokens=3)

    for family, odd in (
        ("qwen2_vl", request(3, picture(1, 400))),
        ("blip2", request(3, picture(60, 44), "left or right " * 600)),
    ):
        backend = TransformersVLM(str(make(family, tmp_path / family)), Settings(batch_size=4))
        asked = [odd if number == 3 else request(number, picture(60, 40 + number)) for number in range(9)]
        found = {each.question_id: each for each in Sender(backend.generate, lambda: None).responses(asked)}
        assert {name for name, each in found.items() if each.status == "failed"} == {"3"}, found["3"]
        assert found["3"].error
        assert len(found) == 9


@pytest.mark.slow
def test_a_model_that_lacks_weights_is_refused_and_nan_is_no_answer(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    from eval_harness.models.local.transformers_vlm import TransformersVLM

    folder = make("llava", tmp_path / "llava")
    asked = [Request(str(n), 0, f"Side {n}?", picture(50, 40 + n), ("a", "b"), "single", max_tokens=m)
             for n, m in enumerate((1, 4, 4))]  # fmt: skip
    backend = TransformersVLM(str(folder), Settings(batch_size=2))
    scored = [Request(f"s{n}", 0, "Side?", picture(50, 40 + n), ("a", "b"), "single", candidates=("A", "B"), scoring=how)
              for n, how in enumerate(("next_token", "sequence"))]  # fmt: skip
    with torch.no_grad():
        backend.network.model.lm_head.weight.fill_(torch.nan)
    for each in [*backend.generate(asked), *(r for s in scored for r in backend.score([s]))]:
        assert (each.status, each.text, each.error) == ("failed", "", "its logits are not numbers")

    weights = load_file(folder / "model.safetensors")
    head = next(name for name in weights if "lm_head" in name)
    save_file(
        {name: value for name, value in weights.items() if name != head}, folder / "model.safetensors", {"format": "pt"}
    )
    assert "lacks 1 of the model's weights" in refused(TransformersVLM, str(folder), Settings())


@pytest.mark.slow
def test_missing_weights_that_are_allowed_are_said(tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    from eval_harness.models.local.transformers_vlm import TransformersVLM

    path = make("llava", tmp_path / "llava") / "model.safetensors"
    weights = load_file(path)
    save_file({name: value for name, value in weights.items() if "lm_head" not in name}, path, {"format": "pt"})
    (told,) = TransformersVLM(str(path.parent), Settings(allow_missing_weights=True)).deviations
    assert told.startswith("the checkpoint lacks 1 of the model's weights, which were drawn at random")
    assert told in capsys.readouterr().err


def test_what_names_no_model_is_one_line_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "class M:\n    def __init__(self, settings):\n        raise KeyError('weights')\n"
    )
    for name, words in {
        "mine.py": "Add :ClassName, e.g. mine.py:MyModel",
        "yours.py": "there is no file yours.py",
        "./nowhere": "there is no folder ./nowhere",
        "a/b/c": "there is no folder a/b/c",
        "vllm:./nowhere": "there is no folder ./nowhere",
        "baseline:text-only:./nowhere": "there is no folder ./nowhere",
        "fake:vlm": "there is no kind of model called 'fake'",
    }.items():
        assert words in refused(load_backend, name, Settings())
    assert re.search(r"M cannot be made \(KeyError", refused(load_plug_in, "mine.py:M", Settings()))


def test_a_name_that_may_be_the_hubs_is_asked_for_once(local_hub):
    for count, name in enumerate(("fake-vlm", "org/fake-vlm"), 1):
        assert "no model on the Hub" in refused(load_backend, name, Settings())
        assert len(local_hub.record.of()) == count
