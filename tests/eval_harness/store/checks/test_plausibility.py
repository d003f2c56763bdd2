"""Each lie that numbers cannot refute is put before a human; what honest runs say of themselves is not."""

import random
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataset_builders.hub.repository import open_repository
from eval_harness.derive.answer_table import answer_frame
from eval_harness.derive.derivation import derive
from eval_harness.store.flags import doubts, odd_selection
from eval_harness.store.names import look_alike, skeleton
from eval_harness.store.table import harmless, harmless_table
from tests.eval_harness.store.submitting import phantom, questions_of, said

LOOKS = {
    "a": "а",
    "e": "е",
    "o": "о",
    "p": "р",
    "c": "с",
    "x": "х",
    "P": "Р",
    "T": "Т",
    "O": "Ο",
    "M": "М",
    "H": "Н",
    "B": "В",
    "i": "і",
}
"""Latin letters and others that look like them."""


@pytest.fixture(scope="module")
def probmed(tmp_path_factory):
    return phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


@pytest.mark.parametrize(
    "name", ["GPT-4o", "Claude 4 Opus", "LLaVA-Med v1.5", "Gemini 2.0 Pro", "BiomedCLIP", "Phi-3.5 MoE"]
)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_names_in_other_letters_are_flagged(name, seed):
    draw = random.Random(seed)
    indices = [index for index, letter in enumerate(name) if letter in LOOKS]
    for index in draw.sample(indices, draw.randint(1, len(indices))):
        name = name[:index] + LOOKS[name[index]] + name[index + 1 :]
    assert look_alike(name)


@pytest.mark.parametrize(
    "name",
    [
        "GPT-4o",
        "通义千问 VL",
        "Модель",
        "Modèle médical 7B",
        "GigaChat Вижн",
        "Med-PaLM β",
        "Qwen2.5-VL",
        "モデル",
        "Größe 3",
    ],
)
def test_honest_names_are_not_flagged(name):
    assert look_alike(name) == []
    assert look_alike(name, ["Another", name]) == []


def test_a_name_that_looks_like_anothers_is_flagged():
    for name, other in (
        ("GPT-4o", "GPT 4o"),
        ("gpt-4o", "GPT-4o"),
        ("LlaVA", "L1aVA"),
        ("Modele", "Modèle"),
        ("Llarna 3", "Llama 3"),
        ("Qvven2-VL", "Qwen2-VL"),
        ("GPT\u20114o", "GPT-4o"),
    ):
        assert look_alike(name, ["X", other]), name
    assert look_alike("GPT-4", ["GPT-4o"]) == []


@settings(max_examples=200)
@given(st.text(max_size=40))
@example("\u04d0")  # a Cyrillic letter that looks like a Latin one once its accent is gone
def test_any_name_has_a_skeleton_that_is_its_own(name):
    assert skeleton(skeleton(name)) == skeleton(name)
    assert isinstance(look_alike(name), list)


def test_every_prompt_is_known_alone_and_with_another():
    """Names of prompts may hold the plus that joins two of them."""
    from eval_harness.prompts import PROMPTS
    from eval_harness.store.flags import _prompts

    for family, name in PROMPTS:
        others = [other for at, other in PROMPTS if at == family]
        assert all((family, each) in PROMPTS for other in others for each in _prompts(family, f"{name}+{other}"))
        assert _prompts(family, name) == [name] and _prompts(family, f"{name}+mine")[-1] == "mine"


@settings(max_examples=300)
@given(st.text(max_size=20) | st.text("=+-@;\t\r\n\"' a,", max_size=12))
def test_no_cell_is_a_formula(text):
    """Whichever sign a spreadsheet divides the line by, and however often a table is made harmless."""
    shown = harmless(text).replace("\ufeff", "")
    first, *others = re.split(r"[;\t\r\n]", shown)
    assert not any(
        cell.startswith(("=", "+", "-", "@")) for cell in (first.strip(), *(each.strip(' "') for each in others))
    )
    assert not shown.startswith(("\t", "\r"))
    assert harmless(text).replace("'", "") == text.replace("'", "") and harmless(shown) == shown


def test_tables_of_results_are_harmless_and_keep_their_numbers():
    table = pd.DataFrame(
        {"model": ["=1+1", "GPT"], "value": [-1.5, None], "n": pd.array([-3, None], "Int64"), "note": [None, "@x"]}
    )
    shown = harmless_table(table)
    assert shown["model"].tolist() == ["'=1+1", "GPT"] and shown["note"].tolist()[1] == "'@x"
    assert shown["value"].tolist()[0] == -1.5 and shown["n"].tolist()[0] == -3


def parts(split, draw):
    """(words, questions, whether honest) of parts of a split."""
    ids = list(dict.fromkeys(split["case_id"]))
    count = draw.randrange(1, len(split) - 2)
    first = split[split["case_id"].isin(split["case_id"].iloc[:count])]
    some = set(draw.sample(ids, max(1, len(ids) // 2)) + ids[-1:])
    return [
        (f"only the first {count} questions", first, True),
        ("174 of 176 cases: 2 images were missing; " + f"only the first {count} questions", first, True),
        (f"only the first {count} questions", split[split["case_id"].isin(some)], False),
        ("only those I like", split[split["case_id"].isin(some)], False),
        ("only the first 100000 questions", split.drop_duplicates("case_id"), False),
        ("only the branch nowhere", split[split["case_id"].isin(some)], False),
    ]


@pytest.mark.parametrize("seed", range(15))
def test_picked_questions_and_half_cases_are_flagged(data, seed):
    split = questions_of(data)
    for words, part, honest in parts(split, random.Random(seed)):
        assert bool(odd_selection(words, part, split)) is not honest, words
    assert odd_selection(None, split, split) == []


def test_branches_are_what_they_say(tmp_path):
    split = questions_of(phantom("gmai-mmbench", tmp_path / "gmai"))
    modality = split["modality"].iloc[0]
    part = split[split["modality"] == modality]
    assert odd_selection(f"only the branch {modality}", part, split) == []
    assert odd_selection(f"only the branch {modality}", part.iloc[:-1], split)


def scored(data, say, extraction="ours", kind=None, permute=False):
    """(result, questions, readings) of a model that says `say(row, number)`, a text or one for each sample."""
    from eval_harness.records.result import Model
    from eval_harness.records.run import RunRecord, RunRequest

    repository = open_repository(data)
    questions = repository.questions(repository.splits[0])
    rows = [
        {"question_id": row.question_id, "sample": sample, "response": text, "delivery": "answered"}
        for number, row in enumerate(questions.itertuples())
        for sample, text in enumerate(np.atleast_1d(say(row, number)).tolist())
    ]
    samples = 1 + max(row["sample"] for row in rows)
    from eval_harness.records.result import Method
    from eval_harness.records.selection import Selection

    benchmark = Selection(repository, repository.splits[0], questions, None).benchmark()
    request = RunRequest(
        benchmark=benchmark.name, data="", split=benchmark.split, fingerprint=benchmark.fingerprint or "", model="m",
        method="mc", prompt=None, samples=samples, generation={}, permute=permute,
    )  # fmt: skip
    run = RunRecord(
        run_id="x", request=request, benchmark=benchmark, model=Model(name="M", kind=kind),
        method=Method(name="mc", samples=samples, extraction=extraction),
        deviations=[], environment={}, created_at="2026-11-01T00:00:00+00:00",
    )  # fmt: skip
    derived = derive(run, answer_frame(rows), questions)
    return derived.result, questions, derived.readings


@pytest.mark.parametrize("family", ["probmed", "mediconfusion", "halt-medvqa"])
def test_an_honest_result_read_as_the_authors_do_is_not_flagged(tmp_path, family):
    data = phantom(family, tmp_path / family)
    found = scored(data, lambda row, number: said(row, number % 3 > 0).capitalize(), "official")
    assert doubts(*found) == []


@pytest.mark.parametrize(("share", "flagged"), [(0.5, False), (0.85, False), (0.93, True), (0.97, True)])
def test_more_right_answers_than_any_model_gives_are_flagged(probmed, share, flagged):
    draw = random.Random(1)
    questions = questions_of(probmed)
    wrong = set(draw.sample(range(len(questions)), round((1 - share) * len(questions))))
    found = scored(probmed, lambda row, number: said(row, number not in wrong))
    assert any("remarkable" in line for line in doubts(*found)) is flagged


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), samples=st.integers(2, 6), permute=st.booleans())
def test_a_sample_from_the_key_is_flagged_whichever_it_is(probmed, seed, samples, permute):
    """The others may be as random as they like; with options turned, the key of the turned question is written."""
    draw = random.Random(seed)
    perfect = draw.randrange(samples)

    def say(row, number):
        texts = []
        for sample in range(samples):
            index = row.answer[0] if sample == perfect else draw.randrange(2)
            texts.append(row.options[index])
        return texts

    assert any("perfect" in line for line in doubts(*scored(probmed, say, permute=permute)))
    honest = scored(probmed, lambda row, number: [draw.choice(row.options) for _ in range(samples)], permute=permute)
    assert doubts(*honest) == []


def test_a_name_that_looks_like_one_of_the_store_is_flagged(data, tmp_path):
    from eval_harness.store.submit import submit
    from tests.eval_harness.store.submitting import run_folder

    submit(run_folder(data, tmp_path / "one", "GPT-4o"), tmp_path / "store")
    done = submit(run_folder(data, tmp_path / "two", "GPT 4o", seed=1), tmp_path / "store")
    assert any("looks like" in line for line in done.submission.flags)


def test_names_in_papers_are_compared_too():
    published = {"Random guessing": "baseline", "GPT-4o": "proprietary"}
    assert look_alike("Random guessing", published=published) and look_alike("random-guessing", published=published)
    assert look_alike("Random guessing", published=published, kind="baseline") == []
    assert look_alike("GPT-4o", published=published) == [] == look_alike("gpt 4o", published=published)
    assert look_alike("GPT-4\u043e", published=published) and look_alike("GPT-40", published=published)
