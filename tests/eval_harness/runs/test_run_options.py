"""What a run asks: the prompts, which are protocol constants (the authors' texts to the last line
break), and the options that change them: option orders, worked examples, scoring methods, plug-ins.
"""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.models.interface import Settings
from eval_harness.records.request import FORMS, Request, Shot
from eval_harness.records.result import RunRequest
from eval_harness.records.selection import select_questions
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.plan import make_plan
from eval_harness.runs.requests import RequestMaker, example_rows, make_requests, with_example_images
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.formatting import format_summary


def asked(phantoms, benchmark="mediconfusion", **changes):
    return EvalConfig(
        **({"benchmark": benchmark, "model": "baseline:oracle", "data": str(phantoms / benchmark)} | changes)
    )


@pytest.mark.parametrize("benchmark", ["mediconfusion", "gmai-mmbench", "halt-medvqa"])
def test_a_model_that_knows_the_options_is_right_in_every_order(phantoms, tmp_path, benchmark):
    result, folder = run_evaluation(asked(phantoms, benchmark, permute=True, out=tmp_path / "run"))
    # A model that knows the answer moves with the option, never with the letter.
    assert result.environment["permuted"]["same_option"] == 100
    assert result.environment["permuted"]["same_letter"] == 0
    headline = {"mediconfusion": "set_accuracy", "gmai-mmbench": "accuracy", "halt-medvqa": "average"}[benchmark]
    assert result.scores[headline].value == 100
    assert result.method.generation["permute"] is True
    answers = pd.read_parquet(folder / "answers.parquet")
    assert answers.groupby("question_id")["sample"].count().nunique() == 1


def test_a_model_that_sticks_to_a_letter_is_found_out(phantoms, tmp_path):
    result, _ = run_evaluation(asked(phantoms, model="baseline:always-A", permute=True, out=tmp_path / "run"))
    assert result.environment["permuted"] == {"same_option": 0, "same_letter": 100, "questions": 28}
    assert result.scores["share_A"].value == 100  # the letter as displayed
    assert "28 questions: the same option throughout 0.0 %, the same letter 100.0 %" in format_summary(result)
    assert result.scores["individual_accuracy"].value == 50


def requests_of(phantoms, benchmark="mediconfusion", shots=0, **changes):
    selection = select_questions(benchmark, str(phantoms / benchmark), None)
    values = {"benchmark": benchmark, "data": "", "split": "test", "fingerprint": "", "model": "", "method": "mc"}
    values |= {"prompt": None, "samples": 1, "generation": generation(), "shots": shots}
    request = RunRequest(**(values | changes))
    rows = with_example_images(selection, example_rows(selection, shots), True) if shots else ()
    maker = RequestMaker(request, selection.repository.family, rows)
    instances = [(row, 0) for row in range(len(selection.questions))]
    return [r for batch in make_requests(selection, maker, instances, True) for r in batch]


def test_examples_are_never_of_the_same_case_or_image(phantoms):
    requests = requests_of(phantoms, shots=3, prompt="mc-flamingo")
    for request in requests:
        assert len(request.shots) == 3
        assert request.image not in {shot.image for shot in request.shots}
        assert all(shot.answer[:3] in ("A: ", "B: ") for shot in request.shots)
        assert request.system.startswith("You are a helpful medical assistant")
    # Otherwise a resumed run would mix answers to different prompts.
    assert requests == requests_of(phantoms, shots=3, prompt="mc-flamingo"), "the same examples every time"


def generation(**options):
    return {"max_tokens": 9, "temperature": 0, "seed": 0, **options}


def test_a_form_puts_image_and_system_message_where_it_says(phantoms):
    for form in FORMS.values():
        for benchmark in ("mediconfusion", "probmed", "halt-medvqa"):
            requests = requests_of(phantoms, benchmark=benchmark, generation=generation(form=form.name))
            assert {r.image_first for r in requests} == {form.image_first}
            assert {r.system for r in requests} == {eval_spec(benchmark).system if form.system else None}


def test_a_system_message_of_the_users_own_goes_before_what_introduces_the_examples(phantoms):
    for text, expected in (("Be brief.", "Be brief."), ("", None)):
        requests = requests_of(phantoms, "probmed", generation=generation(form="authors", system=text))
        assert {r.system for r in requests} == {expected}
    requests = requests_of(
        phantoms, shots=1, prompt="mc-flamingo", generation=generation(form="authors", system="Be brief.")
    )
    (system,) = {r.system for r in requests}
    assert system.startswith("Be brief.\n\nYou are a helpful medical assistant.")


def plug_in(folder):
    """Write a plug-in that declares nothing but that it needs no images."""
    file = folder / "mine.py"
    file.write_text(
        "from eval_harness.records.request import Response\n"
        "class Mine:\n    needs_images = False\n    def __init__(self, settings): pass\n"
        "    def generate(self, requests):\n        for r in requests:\n            yield "
        "Response(r.question_id, r.sample, 'A')\n"
    )
    return f"{file}:Mine"


OPTION_CHANGES = [
    {"form": "text-first"},
    {"form": "authors"},
    {"system": "Be brief."},
    {"max_tokens": 7},
    *(
        {"settings": Settings(**{name: value})}
        for name, value in {
            "thinking": "on",
            "chat_template": "{{ x }}",
            "chat_template_kwargs": {"x": 1},
            "generation": {"top_p": 0.9},
            "quantization": "4bit",
            "adapter": "folder",
            "min_pixels": 10,
            "max_pixels": 20,
            "max_image_side": 30,
            "dtype": "float16",
        }.items()
    ),
    {"settings": Settings(generation={"temperature": 0.3})},
    {"settings": Settings(thinking=5000)},
]


def test_whatever_decides_the_answers_is_part_of_the_request(phantoms, tmp_path):
    model = plug_in(tmp_path)
    wish = asked(phantoms, model=model, out=tmp_path / "run", limit=4)
    run_evaluation(wish)
    # Each change must give a run of its own, or answers would be mixed.
    ids = {make_plan(replace(wish, **changes)).run.run_id for changes in [{}, *OPTION_CHANGES]}
    assert len(ids) == 1 + len(OPTION_CHANGES)
    for changes in OPTION_CHANGES:
        with pytest.raises(BadInput, match="contains a different run"):
            run_evaluation(replace(wish, **changes))
    run = make_plan(replace(wish, settings=Settings(thinking=5000))).run
    # Thinking tokens come on top of the answer's limit.
    assert run.method.generation["max_tokens"] == 512 + 5000
    assert run.method.generation["thinking"] == 5000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "sideways"}, "--form sideways"),
        *(
            ({name: value}, f"--{name.replace('_', '-')} {value}: must be")
            for name, value in (("max_tokens", 0), ("samples", 0), ("shots", -1))
        ),
        *(
            ({"settings": Settings(**{name: value})}, f"--{name.replace('_', '-')} {value}: must be")
            for name in ("timeout", "wait_server", "in_flight", "max_image_side")
            for value in (-1, math.nan)
        ),
        *(
            ({"settings": Settings(generation={name: value})}, f"--generation: {name} ")
            for name in ("temperature", "seed")
            for value in ("x", math.nan)
        ),
        ({"benchmark": "probmed", "permute": True}, "shows no options"),
        ({"permute": True, "samples": 3}, "cannot be combined with --samples"),
        ({"method": "ps"}, "cannot score options"),
        ({"method": "cot"}, "--method cot"),
        ({"shots": 500}, "--shots 500"),
        ({"form": "authors", "model": "baseline:chance"}, "does not receive a conversation"),
        ({"settings": Settings(adapter="x"), "model": "baseline:chance"}, "--model-args adapter"),
        ({"settings": Settings(quantization="4bit"), "model": "openai:m"}, "--model-args quantization"),
        ({"settings": Settings(generation={"max_tokens": 3})}, "--generation: max_tokens"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(phantoms, tmp_path, monkeypatch, changes, words):
    # With a key, the options are the only reason for a refusal.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    with pytest.raises(BadInput, match=words):
        run_evaluation(asked(phantoms, **({"model": plug_in(tmp_path), "out": tmp_path / "run"} | changes)))
    assert not (tmp_path / "run").exists()


def test_candidates_are_what_each_method_compares(phantoms):
    assert {r.candidates for r in requests_of(phantoms, method="gd")} == {("A", "B")}
    assert {r.candidates for r in requests_of(phantoms, benchmark="probmed", method="gd")} == {("Yes", "No")}
    for request in requests_of(phantoms, method="ps_official"):
        assert request.candidates == request.options
        assert request.scoring == "sequence_official"
        assert "A:" not in request.prompt


def test_where_a_run_is_finished_elsewhere_the_result_says_so(phantoms, tmp_path, monkeypatch):
    from eval_harness.runs import plan

    wish = asked(phantoms, model="baseline:chance", out=tmp_path / "run")
    monkeypatch.setattr(plan, "collect_environment", lambda: {"git_commit": "old"})
    run_evaluation(wish)
    journal = tmp_path / "run/answers.jsonl"
    monkeypatch.setattr(plan, "collect_environment", lambda: {"git_commit": "new"})
    # A process that asks nothing is not recorded.
    assert "resumed_with" not in run_evaluation(wish)[0].environment
    # Cut the journal, so that the second process has questions left.
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:5]))
    other_environment, _ = run_evaluation(wish)
    assert other_environment.environment["git_commit"] == "old"
    assert other_environment.environment["resumed_with"] == {"git_commit": "new"}


def test_a_recorded_file_of_the_whole_split_serves_a_part_of_it(phantoms, tmp_path):
    """Answers to questions that --limit leaves out stay unused; those to questions the split does
    not have are refused.
    """
    questions = select_questions("halt-medvqa", str(phantoms / "halt-medvqa"), None).questions
    lines = [json.dumps({"question_id": name, "response": "A"}) for name in questions["question_id"]]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(lines))
    run = asked(phantoms, "halt-medvqa", model=f"recorded:{file}", limit=5, out=tmp_path / "run")
    result, _ = run_evaluation(run)
    assert sum(result.statuses.values()) == result.statuses["answered"] == 5
    file.write_text("\n".join([*lines, json.dumps({"question_id": "fake-no-such", "response": "A"})]))
    with pytest.raises(BadInput, match="fake-no-such"):
        run_evaluation(replace(run, out=tmp_path / "other"))


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
