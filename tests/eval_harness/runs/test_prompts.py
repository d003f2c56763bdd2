"""Prompts are protocol constants: they must be the authors' texts to the last line break."""

import json

import pytest

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.records.request import Request, Shot

MEDICONFUSION_PROMPTS = {prompt.name: prompt for prompt in eval_spec("mediconfusion").prompts}


def test_braces_in_a_question_or_an_option_stay_text():
    prompt = MEDICONFUSION_PROMPTS["mc-0"]
    text = prompt.render("What is {options} in {question}?", ["{question}", "{0}"])
    assert "Question: What is {options} in {question}?\nA: {question}\nB: {0}\n" in text


@pytest.mark.sources
def test_halt_prompts_are_the_authors(sources):
    authors_prompts = json.loads((sources / "halt_medvqa" / "prompts.json").read_text())
    options = {"A": "left", "B": "right"}
    expected = {
        t.format(question="Which side?", option=" ".join(f"{k}. {v}" for k, v in options.items()))
        for t in authors_prompts.values()
    }
    our_prompts = {
        prompt.render(" Which side? ", list(options.values()))
        for prompt in eval_spec("halt-medvqa").prompts
        if "mc" in prompt.methods
    }
    assert our_prompts == expected
    assert len(our_prompts) == 18


FILE_FORMS = {
    ("mc-0", "mc", "gpt"),
    ("mc-quoted", "mc", "default"),
    ("mc-medvint", "mc", "medvint"),
    ("mc-blip2", "mc", "blip2"),
    ("mc-blip2", "greedy", "blip2"),
    ("gd-default", "greedy", "default"),
    ("gd-quoted", "greedy", "molmo"),
    ("ff-default", "gpt4", "default"),
    ("ps-plain", "gpt4", "blip2"),
}


@pytest.mark.sources
@pytest.mark.parametrize(("name", "method", "model"), sorted(FILE_FORMS))
def test_mediconfusion_prompts_are_the_authors(sources, name, method, model):
    authors_prompt = json.loads((sources / "mediconfusion" / "answering_prompts.json").read_text())["prompts"][method][
        model
    ]
    our_prompt = MEDICONFUSION_PROMPTS[name].render("Which side?", ["left", "right"])
    assert our_prompt == authors_prompt.format("Which side?", "left", "right")


@pytest.mark.sources
def test_few_shot_prompts_are_the_authors_med_flamingo_form(sources):
    from jinja2 import Template

    from eval_harness.models.local.model_inputs import PLAIN_TEMPLATE, build_conversation

    authors_prompt = json.loads((sources / "mediconfusion" / "answering_prompts.json").read_text())["prompts"]["mc"][
        "med_flamingo"
    ]
    prompt = MEDICONFUSION_PROMPTS["mc-flamingo"]
    shots = tuple(
        Shot(prompt.render(f"Question {i}", ["x", "y"]), prompt.answer_of_shot(["x", "y"], [i % 2]), b"")
        for i in range(3)
    )
    request = Request(
        "1",
        0,
        prompt.render("Which side?", ["left", "right"]),
        b"",
        ("left", "right"),
        "single",
        system=prompt.intro,
        shots=shots,
    )
    messages = build_conversation(request, lambda image: {"type": "image"})
    text = Template(PLAIN_TEMPLATE).render(messages=messages, marker="<image>", end_of_shot="<|endofchunk|>")
    expected = authors_prompt.replace("|endofchunk|>", "<|endofchunk|>").replace(
        "<<", "<"
    )  # one bracket is missing in the file
    for i in range(3):
        answer = "AB"[i % 2] + ": " + "xy"[i % 2]
        expected = expected.replace(f"Question: **Q{i + 1}**", f"Question: Question {i}\nA: x\nB: y\nAnswer: {answer}")
    assert text == expected.format("Which side?", "left", "right")


def test_the_eleven_prompts_of_the_ablation_differ_and_keep_question_and_options():
    prompts = [MEDICONFUSION_PROMPTS[f"mc-{i}"] for i in range(11)]
    texts = [prompt.render("Which side?", ["sinister", "dexter"]) for prompt in prompts]
    assert len(set(texts)) == len({prompt.text_hash for prompt in prompts}) == 11
    for text in texts:
        assert text.index("Which side?") < text.index("sinister") < text.index("dexter")
        assert text.endswith(": ")
        assert "  " not in text
    assert "\n" not in texts[7]


@pytest.mark.parametrize(
    ("family", "kind"), [("mediconfusion", "single"), ("probmed", "yes_no"), ("gmai-mmbench", "multiple")]
)
def test_every_method_has_a_default_and_refuses_the_others(family, kind):
    for method in ("mc", "gd", "ps", "ps_official", "ff"):
        prompt = get_prompt(family, None, kind, method)
        assert prompt.shows_options == (method in ("mc", "gd") and family != "probmed")
    for name, method, words in (("mc-0", "ps", "not available for --method ps"), ("mc-99", "mc", "mc-0")):
        with pytest.raises(BadInput, match=words):
            get_prompt("mediconfusion", name, "single", method)
