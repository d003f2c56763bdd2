"""Baselines, and local models of transformers with random weights: batches, sampling and prefixes;
reasoning that is separated by tokens, switched by the template and limited by a budget.
"""

import random

import pytest
import torch
from jinja2 import Template
from transformers import AutoProcessor, LlamaConfig

from dataset_builders.errors import BadInput
from eval_harness.models.answer_tokens import (
    OutputReader,
    opens_reasoning,
    reasoning_delimiter_ids,
    thinking_variables,
)
from eval_harness.models.interface import Settings
from eval_harness.models.load import Baseline
from eval_harness.models.local.network import Network, SeededSampling
from eval_harness.models.local.tiny_vlm import make_tiny_vlm
from eval_harness.models.local.transformers_vlm import BatchSize, TransformersVLM, sort_for_batching, take_batch
from eval_harness.runs.ask import Sender
from tests.eval_harness.models.http.asking import picture, request as chat_request
from tests.eval_harness.models.tiny_families import CHAT, make, tokenizer


def request(question_id="1", **changes):
    return chat_request(question_id, **({"prompt": "?", "image": None} | changes))


def texts(backend, requests):
    return [response.text for response in backend.generate(requests)]


def test_always_letter_baseline_falls_back_to_the_last_option_and_answers_yes_no():
    always = [Baseline(name) for name in ("always-A", "always-C")]
    requests = [
        request(),
        request(options=("a", "b", "c", "d")),
        request(options=("yes", "no"), question_type="yes_no"),
    ]
    assert [texts(backend, requests) for backend in always] == [["A", "A", "yes"], ["B", "C", "no"]]


def test_chance_baseline_depends_on_the_question_not_the_order():
    chance = Baseline("chance")
    requests = [request(str(i), options=("a", "b", "c", "d")) for i in range(400)]
    forward = {r.question_id: r.text for r in chance.generate(requests)}
    backward = {r.question_id: r.text for r in chance.generate(requests[::-1])}
    assert forward == backward
    # Expected 100 each; below 60 is beyond four standard deviations.
    counts = [list(forward.values()).count(letter) for letter in "ABCD"]
    assert min(counts) > 60, counts
    other_sample = {
        r.question_id: r.text
        for r in chance.generate([request(r.question_id, sample=1, options=r.options) for r in requests])
    }
    assert other_sample != forward


def test_oracle_answers_with_the_key_and_fails_without_one():
    oracle = Baseline("oracle")
    many = request(answer=(0, 2), options=("a", "b", "c"), question_type="multiple")
    answered, hidden = oracle.generate([many, request(answer=())])
    assert (answered.text, answered.status) == ("A,C", "answered")
    assert (hidden.text, hidden.status) == ("", "failed")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_vlm(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def backends(tiny):
    """The tiny model, with batches and with one question at a time."""
    return TransformersVLM(str(tiny), Settings()), TransformersVLM(str(tiny), Settings(batch_size=1))


def test_out_of_memory_halves_the_batch_and_fails_only_a_question_that_never_fits(tiny, tmp_path, monkeypatch):
    model = TransformersVLM(str(tiny), Settings(batch_size=8))
    # Two requests fit into the simulated memory, question 3 never does.
    real = model.network.generate
    sizes = []

    def generate(prepared, *arguments):
        sizes.append(len(prepared.requests))
        if sizes[-1] > 2 or any(batch_request.question_id == "3" for batch_request in prepared.requests):
            raise torch.OutOfMemoryError
        return real(prepared, *arguments)

    monkeypatch.setattr(model.network, "generate", generate)
    requests = [request(str(i), image=picture(), max_tokens=2) for i in range(7)]
    responses = {
        r.question_id: r
        for r in Sender(model.generate, lambda: None, "--model tiny", tmp_path / "error.txt").responses(requests)
    }
    assert {name for name, response in responses.items() if response.status == "failed"} == {"3"}
    assert "alone it does not fit into memory" in responses["3"].error
    assert len(responses) == 7 and max(sizes[2:]) <= 2


def test_unusable_model_gives_a_one_line_error(tmp_path, tiny):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="cannot be loaded"):
        TransformersVLM(str(tmp_path / "empty"), Settings())
    LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1).save_pretrained(tmp_path / "text")
    with pytest.raises(BadInput) as error:
        TransformersVLM(str(tmp_path / "text"), Settings())
    assert "\n" not in str(error.value)


def test_sampled_answers_are_independent_of_the_batch(backends):
    requests = [
        request(
            str(i),
            sample=sample,
            prompt="?" * (1 + i % 3),
            image=picture(colour=(60 * i, 9, 9)),
            temperature=1.0,
        )
        for i in range(4)
        for sample in range(3)
    ]

    together, one_by_one = (
        {(r.question_id, r.sample): r.text for r in backend.generate(order)}
        for backend, order in zip(backends, (requests, requests[::-1]), strict=True)
    )
    assert together == one_by_one
    assert len({together["0", sample] for sample in range(3)}) > 1


def test_seeded_sampling_draws_from_the_softmax():
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    picks = torch.cat([SeededSampling(0.5, [seed], "cpu")(None, logits).argmax(-1) for seed in range(2000)])
    expected = (logits[0] / 0.5).softmax(-1)
    assert torch.allclose(torch.bincount(picks, minlength=3) / 2000, expected, atol=0.04)


def test_batches_keep_questions_of_an_image_together():
    # Prompts of one image have equal lengths, so its questions stay adjacent.
    requests = [request(f"{i}-{j}", image=bytes([i]), prompt="x" * (i + 1)) for j in range(9) for i in range(6)]
    requests += [request(f"{i}-long", image=bytes([9]), max_tokens=5) for i in range(2)]
    queue, batches = sort_for_batching(requests), []
    while queue:
        batches.append(take_batch(queue, 32))
    assert sorted(r.question_id for batch in batches for r in batch) == sorted(r.question_id for r in requests)
    assert sorted(map(len, batches)) == [2, 22, 32]  # those with another limit on their own
    assert sorted(len({r.image for r in batch}) for batch in batches) == [1, 3, 4]


def test_the_batch_grows_with_free_memory_until_it_ran_out():
    size = BatchSize(None, on_cpu=False)
    start = size.size
    for memory_share in (0.1, 0.8):
        size.record_success(size.size, memory_share)
        assert size.size == 2 * start
    size.shrink(2 * start)
    size.record_success(start, 0.1)
    assert size.size == start, "it does not grow again after memory ran out"


def test_prefix_sharing_is_switched_off_if_the_first_batch_differs(tiny, backends, monkeypatch):
    image = picture()
    requests = [request(str(i), prompt=f"Which side {i}?", image=image, max_tokens=4) for i in range(6)]
    expected = texts(backends[0], requests)
    assert backends[0]._sharing_verified
    monkeypatch.setattr(Network, "agrees", lambda *_: False)
    wary = TransformersVLM(str(tiny), Settings())
    assert wary.describe()["shared_image_prefix"], "the same in every process, whatever its share holds"
    assert texts(wary, requests) == expected
    assert wary.describe()["shared_image_prefix"] is False


def test_generation_options_give_equal_tokens_after_a_shared_prefix(tiny):
    """Penalties ignore padding, texts end at any of several tokens, and rows continue after others
    end.
    """
    model = TransformersVLM(str(tiny), Settings())
    network, lengths, chance = model.network, set(), random.Random(7)
    vocabulary = range(network.model.config.get_text_config().vocab_size)
    for _ in range(3):
        every = {
            "repetition_penalty": 1.7,
            "no_repeat_ngram_size": 2,
            "bad_words_ids": [[token] for token in chance.sample(vocabulary, 20)],
            "min_new_tokens": 3,
            "top_k": 4,
        }
        network.generation = {name: value for name, value in every.items() if chance.random() < 0.5}
        network.model.generation_config.eos_token_id = [
            network.pad,
            *chance.sample(vocabulary, len(vocabulary) // 8),
        ]
        warm = chance.choice([0.0, 0.9])
        requests = [request(str(i), prompt=f"Side {'? ' * chance.randint(1, 9)}{i}", image=picture()) for i in range(6)]
        seeds = [chance.randrange(1000) for _ in requests]
        with torch.inference_mode():
            together = network.generate(model.processing.shared_prefixes(requests), 9, warm, seeds)[0].tolist()
            for row, prompt_request, seed in zip(together, requests, seeds, strict=True):
                single_row = network.generate(model.processing.full_prompts([prompt_request]), 9, warm, [seed])[0][
                    0
                ].tolist()
                assert row == single_row + [network.pad] * (len(row) - len(single_row)), network.generation
                lengths.add(len(single_row))
    assert len(lengths) > 2


def test_control_tokens_in_a_question_stay_text_with_shared_prefixes(backends):
    image = picture()
    requests = [request(str(i), prompt=f"Is <image> or </s> {i} there?", image=image, max_tokens=4) for i in range(5)]
    shared, unshared = backends
    assert texts(shared, requests) == texts(unshared, requests)
    assert shared._sharing_verified


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
    return [chat_request(i, prompt="left or right? " * (i + 1), **changes) for i in range(count)]


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
