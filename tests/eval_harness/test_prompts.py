"""Prompts are protocol constants: they must be the authors' texts to the last line break."""

import json

import pytest

from dataset_builders.errors import BadInput
from eval_harness.prompts import DEFAULT_PROMPT, PROMPTS, prompt_for


def test_every_benchmark_has_its_default_prompt():
    for format, name in DEFAULT_PROMPT.items():
        assert prompt_for(format, None, "single").name == name


def test_gmai_multiple_choice_has_its_own_default():
    prompt = prompt_for("gmai-mmbench", None, "multiple")
    assert prompt.name == "multiple"
    assert prompt.render("Which?", ["x", "y"]).endswith("For example: A,B")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadInput, match=r"mc-0"):
        prompt_for("mediconfusion", "mc-99", "single")


def test_braces_in_a_question_or_an_option_stay_text():
    prompt = PROMPTS["mediconfusion", "mc-0"]
    text = prompt.render("What is {options} in {question}?", ["{question}", "{0}"])
    assert "Question: What is {options} in {question}?\nA: {question}\nB: {0}\n" in text


@pytest.mark.sources
def test_halt_prompts_are_the_authors(sources):
    theirs = json.loads((sources / "halt_medvqa" / "prompts.json").read_text())
    options = {"A": "left", "B": "right"}
    expected = {
        t.format(question="Which side?", option=" ".join(f"{k}. {v}" for k, v in options.items()))
        for t in theirs.values()
    }
    ours = {p.render(" Which side? ", list(options.values())) for p in PROMPTS.values() if p.format == "halt-medvqa"}
    assert ours == expected
    assert len(ours) == 18


@pytest.mark.sources
def test_mediconfusion_prompts_are_the_authors(sources):
    theirs = json.loads((sources / "mediconfusion" / "answering_prompts.json").read_text())["prompts"]["mc"]
    render = {
        name: PROMPTS["mediconfusion", name].render("Which side?", ["left", "right"]) for name in ("mc-0", "mc-quoted")
    }
    assert render["mc-0"] == theirs["gpt"].format("Which side?", "left", "right")
    assert render["mc-quoted"] == theirs["default"].format("Which side?", "left", "right")
