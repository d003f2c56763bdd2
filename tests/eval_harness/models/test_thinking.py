"""Reasoning of local models: separated by tokens, switched by the template, limited by a budget."""

import random

import pytest
import torch
from jinja2 import Template
from transformers import AutoProcessor

from dataset_builders.errors import BadInput
from eval_harness.models.answer_tokens import (
    OutputReader,
    opens_reasoning,
    reasoning_delimiter_ids,
    thinking_variables,
)
from eval_harness.models.interface import Settings
from tests.eval_harness.models.tiny_families import CHAT, make, tokenizer

TRACE_FAMILIES = {
    "qwen": (("<think>", "</think>"), "<think>{}</think>{}"),
    "magistral": (("[THINK]", "[/THINK]"), "[THINK]{}[/THINK]{}"),
    "gemma4": (("<|channel>", "<channel|>"), "<|channel>thought\n{}<channel|>{}"),
    "medgemma": (("<unused94>", "<unused95>"), "<unused94>thought\n{}<unused95>{}"),
    "kimi": (("◁think▷", "◁/think▷"), "◁think▷{}◁/think▷{}"),
    "seed": (("<seed:think>", "</seed:think>"), "<seed:think>{}</seed:think>{}"),
    "command": (
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        "<|START_THINKING|>{}<|END_THINKING|>{}",
    ),
    "glm": (
        ("<think>", "</think>", "<|begin_of_box|>", "<|end_of_box|>"),
        "<think>{}</think><|begin_of_box|>{}<|end_of_box|>",
    ),
    "harmony": (
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    ),
}
OPENED_PROMPTS = {
    "qwen": "<think>",
    "magistral": "[THINK]",
    "kimi": "◁think▷",
    "seed": "<seed:think>",
    "glm": "<think>",
}


def thoughts(seed):
    chance = random.Random(seed)
    traces = [
        "The image shows a lesion on the left.",
        "It could be A.",
        "Wait, B is more likely.",
        "Option D? no.",
        "yes, A",
    ]
    return " ".join(chance.choice(traces) for _ in range(chance.randint(1, 5)))


@pytest.mark.parametrize("family", TRACE_FAMILIES)
def test_reasoning_is_separated_by_special_tokens_also_if_truncated(family):
    marks, form = TRACE_FAMILIES[family]
    tok = tokenizer(*marks)
    end = [tok.eos_token_id, tok.pad_token_id, tok.pad_token_id]
    for seed in range(12):
        reasoning, answer = thoughts(seed), "ABCD"[seed % 4]
        ids = tok(form.format(reasoning, answer), add_special_tokens=False)["input_ids"]
        # Otherwise the test would pass without any handling of special tokens.
        assert form not in tok.decode(ids, skip_special_tokens=True), "the marks are special tokens"
        (output,) = OutputReader(tok, opened=False).read([ids + end])
        assert (output.answer, output.reasoning, output.unfinished) == (answer, reasoning, False) or (
            family in ("gemma4", "medgemma", "harmony") and output.answer == answer and reasoning in output.reasoning
        )
        inside = len(tok(form.split("{}", maxsplit=1)[0] + reasoning, add_special_tokens=False)["input_ids"])
        for cut in range(1, inside):
            (output,) = OutputReader(tok, opened=False).read([ids[:cut]])
            assert output.answer.strip() == "", (cut, output)
        if family in OPENED_PROMPTS:
            opening = len(tok(OPENED_PROMPTS[family], add_special_tokens=False)["input_ids"])
            (output,) = OutputReader(tok, opened=True).read([ids[opening:] + end])
            assert (output.answer, output.reasoning, output.unfinished) == (answer, reasoning, False)
            for cut in range(opening + 1, inside):
                (output,) = OutputReader(tok, opened=True).read([ids[opening:cut]])
                assert (output.answer, output.unfinished) == ("", True)


def test_texts_without_reasoning_are_decoded_unchanged():
    for marks in (
        (),
        ("<think>", "</think>"),
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    ):
        tok = tokenizer(*marks)
        rows = [tok(text, add_special_tokens=False)["input_ids"] for text in ("B", " left: <b> it is", "yes, no\n")]
        output = OutputReader(tok, opened=False).read([[*row, 2, 0, 0] for row in rows])
        assert [text.answer for text in output] == tok.batch_decode(rows, skip_special_tokens=True)
        assert {text.reasoning for text in output} == {None}


@pytest.mark.parametrize(
    ("end", "opened"),
    [
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<start_of_turn>model\n<unused94>thought\n", True),
        ("[THINK]", True),
        ("<|start|>assistant<|channel|>analysis<|message|>", True),
        ("<|start|>assistant", False),
    ],
)
def test_opened_reasoning_is_detected_in_the_prompt(end, opened):
    assert opens_reasoning(end) == opened


def render(template):
    return lambda variables: Template(template).render(**variables)


def test_thinking_is_switched_by_the_template_variable():
    qwen = render("A:{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}")
    assert thinking_variables(qwen, {}, None) == {}
    assert thinking_variables(qwen, {}, "on") == {"enable_thinking": True}
    assert thinking_variables(qwen, {}, "off") == {"enable_thinking": False}
    assert thinking_variables(render("A:{% if thinking %}<think>{% endif %}"), {}, 40) == {"thinking": True}
    always = render("A:<think>")
    assert thinking_variables(always, {}, "on") == {}
    assert thinking_variables(render("A:"), {}, "off") == {}
    assert thinking_variables(render("A:"), {}, 40) == {}
    for template, thinking in ((always, "off"), (render("A:"), "on")):
        with pytest.raises(BadInput, match="no variable"):
            thinking_variables(template, {}, thinking)


def test_reasoning_budget_requires_delimiter_tokens():
    tok = tokenizer("<think>", "</think>", "<unused94>", "<unused95>")
    ids = {token: tok.convert_tokens_to_ids(token) for token in ("<think>", "</think>", "<unused94>", "<unused95>")}
    assert reasoning_delimiter_ids(tok, "<think></think>") == (ids["<think>"], ids["</think>"])
    assert reasoning_delimiter_ids(tok, "<unused94>..<unused95>") == (
        ids["<unused94>"],
        ids["<unused95>"],
    )
    with pytest.raises(BadInput, match="number of tokens"):
        reasoning_delimiter_ids(tokenizer(), "")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A tiny LLaVA with reasoning tokens and a template that can open the reasoning."""
    torch.set_num_threads(1)
    folder = make("llava_onevision", tmp_path_factory.mktemp("thinker") / "model", "<think>", "</think>")
    processor = AutoProcessor.from_pretrained(folder)
    processor.chat_template = CHAT.replace("IMAGE", "<image>\n").replace(
        "assistant\n", "assistant\n{% if enable_thinking %}<think>{% endif %}"
    )
    processor.save_pretrained(folder)
    return folder


def questions(count=4, **changes):
    return [asking.request(i, prompt="left or right? " * (i + 1), **changes) for i in range(count)]


def test_text_cut_inside_opened_reasoning_is_not_an_answer(thinker):
    model = TransformersVLM(str(thinker), Settings(thinking="on", max_tokens=12))
    end = model.processor.tokenizer.convert_tokens_to_ids("</think>")
    responses = list(model.generate(questions(max_tokens=12)))
    assert model.processing.opened
    for response in responses:
        assert (response.text, response.finish_reason) == ("", "length")
        assert response.reasoning
        assert response.usage[1] == 12
    plain = TransformersVLM(str(thinker), Settings(thinking="off", max_tokens=12))
    assert not plain.processing.opened
    assert all(response.reasoning is None for response in plain.generate(questions(max_tokens=12)))
    list(model.score(questions(2, candidates=("A", "B"))))
    assert any("reasoning" in words for words in model.deviations)

    bounded = TransformersVLM(str(thinker), Settings(thinking=5, max_tokens=12))
    tokens = {}
    real = bounded.network.generate
    # Keep the generated tokens of the first batch.
    bounded.network.generate = lambda *a, **k: tokens.setdefault("rows", real(*a, **k))
    responses = list(bounded.generate(questions(max_tokens=12)))
    assert [row.index(end) for row in tokens["rows"][0].tolist()] == [5] * 4, "ended after five tokens"
    assert all(response.reasoning for response in responses)
    assert any(response.text for response in responses)


def test_thinking_unsupported_by_the_template_is_refused(thinker, tmp_path):
    template = "{% for m in messages %}{% for p in m['content'] %}{{ p['text'] or '<image>' }}{% endfor %}{% endfor %}"
    with pytest.raises(BadInput, match="no variable"):
        TransformersVLM(str(thinker), Settings(thinking="on", chat_template=template))
    with pytest.raises(BadInput, match="chat template cannot be used"):
        TransformersVLM(str(thinker), Settings(chat_template="{% for %}"))
    with pytest.raises(BadInput, match="--generation: num_beams cannot be set"):
        TransformersVLM(str(thinker), Settings(generation={"num_beams": 3}))
