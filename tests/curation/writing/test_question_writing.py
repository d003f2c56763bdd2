"""Writing questions: tolerant reading, the rules of prompt A.1, retries, a journal that is never paid twice."""

import json
import random
import re
from collections import Counter
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.writing.asking import AskSettings, ask_once
from curation.writing.categories import categorize_images, discover_categories, find_patterns, load_categories
from curation.writing.paper_prompts import (
    CATEGORY_PROMPT,
    DISCOVER_PROMPT,
    PATTERN_PAIR,
    PATTERNS_PROMPT,
    PROMPT_CATEGORIES,
    QUESTION_PROMPT,
    SYSTEM_PROMPT,
    fill_template,
)
from curation.writing.question_writing import Draft, find_problems, parse_draft, read_drafts, write_questions
from dataset_builders.errors import BadInput
from dataset_builders.journal import read_journal
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.records.request import Response
from tests.curation.commands import curate
from tests.curation.model_server import model_server
from tests.sampling import few

PLAIN = (
    "Question: Which lung shows the opacity?\nOption1: The left lung\nOption2: The right lung\nImage1: {}\nImage2: {}"
)


SIDES = [
    ("The left lung", "The right lung"),
    ("≥5 cm", "≤5 cm"),
    ("↑", "↓"),
    ("+", "-"),
    (">50%", "<50%"),
    ("α", "β"),
    ("左肺", "右肺"),
    ("की", "का"),
]
OPTIONS = ["Option{n}: {text}", "option {n}: {text}", "- **OPTION {n}:** {text}"]
ANSWERS = ["{text}", "Option{n}", "Option {n}", "{n}", "Option {n}: {text}", "Option{n} - {text}.", "{n}) {text}"]
ASKED = ["Question: {}", "**Question:** {}", "### 1. Question:\n{}", "question: {}"]
AROUND = ["{}", "Sure! Here it is.\n\n{}\n\nI hope this helps.", "```\n{}\n```", "Options and answers, e.g. as asked:\n{}",
          "<think>\n" + PLAIN.format("The right lung", "The left lung") + "\nNo, swap.\n</think>\n{}",
          "{}\n\nQuestion: Another one?\nOption1: x\nOption2: y\nImage1: x\nImage2: y"]  # fmt: skip


@given(st.randoms(use_true_random=False))
def test_replies_are_read_as_they_are_meant_however_they_are_written(rng):
    """Lines in any order, with Markdown, numbers or texts, and something around them."""
    sides, first = rng.choice(SIDES), rng.randrange(2)
    asked = "Which lung shows the opacity?"

    def filled(form, at):
        return form.format(n=at + 1, text=sides[at])

    style = rng.choice(OPTIONS)
    lines = [rng.choice(ASKED).format(asked), *(filled(style, at) for at in (0, 1))]
    answers = [filled(rng.choice(ANSWERS), at) for at in (first, 1 - first)]
    lines += [f"{rng.choice(['', '**'])}Image{n + 1}: {answer}" for n, answer in enumerate(answers)]
    around = rng.choice(AROUND)
    if around.startswith("{}\n\nQuestion") or "Question" not in around:
        lines = lines if around.startswith("{}\n\nQ") else rng.sample(lines, 5)
    reply = around.replace("{}", rng.choice(["\n", "\n\n"]).join(lines))
    assert parse_draft(reply) == (Draft(asked, sides, (first, 1 - first)), []), reply


def test_replies_that_say_no_question_are_refused():
    left, right = "The left lung", "The right lung"
    for reply, says in (
        ("I cannot help with that.", "no question"),
        ("Question: Which side?\nOption1: left\nImage1: left\nImage2: right", "no option2"),
        ("Question: Which?\nOption1: Left.\nOption2: left\nImage1: left\nImage2: left", "both options read the same"),
        ("Question: Which?\nOption1: l\nOption2: r\nOption3: both\nImage1: l\nImage2: r", "more than two"),
        (PLAIN.format(left, right) + "\nImage3: The left lung", "a third image"),
        (PLAIN.format("both lungs", right), "neither option"),
        (PLAIN.format("The left lung or the right lung", right), "neither option"),
        (PLAIN.format("Option1: The right lung", "Option2"), "neither option"),
    ):
        draft, wrong = parse_draft(reply)
        assert draft is None and says in wrong[0], reply


CAPTIONS = (
    "A chest radiograph that shows a dense opacity in the left lower lobe of the lung",
    "A normal chest radiograph of an adult",
)


def test_bad_questions_are_named_and_good_ones_pass():
    long = "A very large mass with spiculated borders that reaches the wall"
    copied = "Which chest radiograph shows a dense opacity in the left lower lobe of the lung?"
    for question, options, answers, says in (
        ("Which lung?", ("left", "right"), (0, 0), "same for both"),
        ("Which lung is opaque in Image1?", ("left", "right"), (0, 1), "refers to images"),
        ("What differs between the two images?", ("left", "right"), (0, 1), "refers to images"),
        ("Compared to a healthy lung, which is opaque?", ("left", "right"), (0, 1), "refers to images"),
        ("Is the opacity larger than the other?", ("yes", "no"), (0, 1), "refers to images"),
        ("What does the caption say?", ("left", "right"), (0, 1), "refers to images"),
        (copied, ("yes", "no"), (0, 1), "copies"),
        ("Is the opacity in the left lung?", ("left lung", "right lung"), (0, 1), "names one of its options"),
        ("What is seen?", ("Pleural effusion", long), (0, 1), "much longer"),
        ("Which lung shows the opacity in this image?", ("left", "right"), (1, 0), ""),
        ("Is the opacity on the left or the right?", ("left", "right"), (0, 1), ""),
        ("Which kidney is larger than the other kidney?", ("left", "right"), (0, 1), ""),
        ("Which imaging modality was used?", ("CT", "MRI"), (0, 1), ""),
    ):
        found = find_problems(Draft(question, options, answers), CAPTIONS)
        assert any(says in problem for problem in found) if says else found == [], question


@pytest.mark.sources
def test_the_authors_published_drafts_are_hardly_ever_refused(sources):
    """The AI questions that radiologists worked from were written by the same prompt: the rules must let nearly all
    through."""
    refused = []
    for name, pair in json.loads((sources / "mediconfusion" / "dataset.json").read_text()).items():
        draft = Draft(
            pair["AI_question"],
            (pair["AI_option_A"], pair["AI_option_B"]),
            tuple("AB".index(pair[f"im_{k}_correct"]) for k in (1, 2)),
        )
        wrong = find_problems(draft, (pair["cap_1"], pair["cap_2"]))
        refused += [(name, wrong)] * bool(wrong)
    assert len(refused) <= 4, refused


def test_prompts_are_the_papers(papers):
    text = (papers / "mediconfusion_iclr2025.txt").read_text()
    squeezed = re.sub(r"[\s\\]+", "", text)
    for prompt in (
        SYSTEM_PROMPT,
        *QUESTION_PROMPT.splitlines(),
        *CATEGORY_PROMPT.splitlines()[1:2],
        *DISCOVER_PROMPT.splitlines()[:1],
        *PATTERN_PAIR.splitlines()[1:],
    ):
        assert re.sub(r"\s+", "", prompt) in squeezed, prompt
    # The text of A.3 was extracted from a page whose first lines are out of order; its end is not.
    assert re.sub(r"\s+", "", PATTERNS_PROMPT.split("Can you ")[1].splitlines()[0])[30:] in squeezed
    assert re.sub(r"\s+", "", ", ".join(PROMPT_CATEGORIES)) in squeezed


def test_a_caption_that_looks_like_a_placeholder_is_just_text():
    filled = fill_template(
        QUESTION_PROMPT, caption_of_image_1="see **CAPTION OF IMAGE 2** {x}", caption_of_image_2="second"
    )
    assert "Image1: see **CAPTION OF IMAGE 2** {x}\nImage2: second\n" in filled


def made_pairs(n=12):
    pairs = pd.DataFrame({"i": range(n), "j": range(100, 100 + n), "sim_med": 0.95, "sim_gen": 0.5})
    pairs["image_1"], pairs["image_2"] = [f"a{k}.png" for k in range(n)], [f"b{k}.png" for k in range(n)]
    captions = {f"{side}{k}.png": f"{side}{k} " + "lung seen from the front " * 5 for k in range(n) for side in "ab"}
    captions["a3.png"] = "too short"
    return pairs, captions


def template(prompt, before):
    """Bad replies first for some pairs, so that every branch is taken."""
    number = int(re.search(r"Image1: a(\d+) ", prompt).group(1))
    good = PLAIN.format("The left lung", "The right lung")
    if number == 5:
        return "no question here"
    if number == 6 and before == 0:
        return PLAIN.format("The left lung", "The left lung")
    if number == 7 and before < 2:
        return "Question: What do the images show?\nOption1: a\nOption2: b\nImage1: a\nImage2: b"
    return good


def chat(url, **settings):
    model = OpenAIChat("stand-in", Settings(base_url=url, **settings))
    model.first_wait = 0.01
    return model


def test_questions_are_written_checked_and_asked_again(tmp_path):
    pairs, captions = made_pairs()
    with model_server(template) as (url, log):
        funnel = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings(price=(10, 100)))
        asked = len(log.asked)
        again = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings(price=(10, 100)))
        assert len(log.asked) == asked  # nothing is paid twice
    assert again == json.loads((tmp_path / "q" / "funnel.json").read_text()) == funnel | {"had_a_question": 10}
    assert all(system == SYSTEM_PROMPT for system, _ in log.asked)
    assert funnel["pairs"], funnel["short_caption"] == (12, 1)
    assert funnel["written"] == 10
    assert funnel["not_written"] == {"no question, option1, option2, image1, image2": 1}
    assert funnel["replies"] == asked == 9 + 2 + 3 + 3 - 1 * 0 - 1
    assert funnel["cost"] == pytest.approx(asked * (100 * 10 + 20 * 100) / 1e6)
    drafts = read_drafts(tmp_path / "q")
    assert set(drafts["pair_id"]) == {f"{k}-{100 + k}" for k in range(12) if k not in (3, 5)}
    assert sorted(drafts["correct_1"]) == ["A"] * 5 + ["B"] * 5
    assert (drafts["correct_1"] != drafts["correct_2"]).all()
    for row in drafts.to_dict("records"):
        assert row[f"option_{row['correct_1']}"] == "The left lung"
        assert row[f"option_{row['correct_2']}"] == "The right lung"
    changed = captions | {"a1.png": "a1 " + "something else " * 20}
    with pytest.raises(BadInput, match="on other images or captions"):
        write_questions(pairs, changed, chat(url), tmp_path / "q", AskSettings())


def test_another_model_is_asked_anew_until_there_are_reviews_and_no_question_is_an_error(tmp_path):
    pairs, captions = made_pairs()
    with model_server(template) as (url, log):
        write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
        asked = len(log.asked)
        other = OpenAIChat("another", Settings(base_url=url))
        funnel = write_questions(pairs, captions, other, tmp_path / "q", AskSettings())
        assert funnel["written"] and len(log.asked) == funnel["replies"] > asked
        drafts = read_drafts(tmp_path / "q")
        (tmp_path / "q" / "reviews.jsonl").touch()
        funnel = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
        assert funnel["had_a_question"] == 10 and read_drafts(tmp_path / "q").equals(drafts)
        with pytest.raises(BadInput, match="no pairs"):
            write_questions(pairs.iloc[:0], captions, other, tmp_path / "q", AskSettings())
    names = sorted({*pairs["image_1"], *pairs["image_2"]})
    (tmp_path / "pairs").mkdir()
    pairs.to_parquet(tmp_path / "pairs" / "pairs.parquet")
    pd.DataFrame({"image": names, "caption": [captions[name] for name in names]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    words = ("write", tmp_path / "pairs", "--table", tmp_path / "table.csv", "--model", "m", "--tries", 1)
    with (
        model_server(lambda prompt, before: "I cannot.") as (url, _),
        pytest.raises(BadInput, match="none of 12 questions could be written"),
    ):
        curate(*words, "--base-url", url, "--out", tmp_path / "none")
    with model_server(template) as (url, log), pytest.raises(BadInput, match="no two captions have 99999 characters"):
        curate(*words, "--base-url", url, "--out", tmp_path / "short", "--min-caption", 99999)
    assert not log.asked


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_runs_that_die_and_servers_that_fail_lose_nothing_and_pay_nothing_twice(tmp_path, seed):
    """Runs over more or fewer pairs, killed anywhere, over replies that are good, bad, refused or fail, with torn lines in the journal:
    a failure is no try, no pair has more than three, a good question is final, and so is its letter, by which reviewers fix options."""
    rng = random.Random(seed)
    pairs, captions = made_pairs(9)
    out, tries, good, letters = tmp_path / "q", Counter(), set(), {}

    class Drawn:
        name = "stand-in"
        kinds = ("good", "good", "bad", "refused", "failed")

        def generate(self, requests):
            for request in requests:
                if rng.random() < 0.1 and len(self.kinds) > 1:
                    raise KeyboardInterrupt
                kind, pair = rng.choice(self.kinds), request.question_id.split()[0]
                assert pair not in good and tries[pair] < 3
                tries[pair] += kind != "failed"
                good.update({pair} if kind == "good" else ())
                around = (
                    "\u2028Well\x85now\u2029\n{}\nbye \ud83d"  # signs that end a line elsewhere, and half a character
                )
                text = around.format(
                    PLAIN.format("The left lung", "The right lung") if kind == "good" else "I see a lung."
                )
                status = kind if kind in ("refused", "failed") else "answered"
                yield Response(
                    request.question_id, request.sample, text if status == "answered" else "", status, error=kind
                )

    model = Drawn()
    for run in range(8):
        count = rng.randint(1, 9)
        if run == 7:
            model.kinds, count = ("good",), 9
        try:
            funnel = write_questions(
                pairs.head(count), captions, model, out, AskSettings(seed=rng.randrange(9), min_caption=0)
            )
        except KeyboardInterrupt:
            with (out / "journal.jsonl").open("a") as file:
                file.write('{"id": "8-108", "status": "ans')
            continue
        drafts = read_drafts(out).set_index("pair_id")["correct_1"].to_dict()
        now = set(pairs.head(count).apply(lambda row: f"{row['i']}-{row['j']}", axis=1))
        assert drafts.keys() >= good & now and drafts.keys() <= good
        assert funnel["written"] == len(good & now)
        assert drafts == {pair: letters.setdefault(pair, letter) for pair, letter in drafts.items()}
    assert set(letters) >= good and all(pair in good or tries[pair] == 3 for pair in map("{0}-10{0}".format, range(9)))
    assert abs(list(letters.values()).count("A") - list(letters.values()).count("B")) <= 1


@pytest.fixture
def written(tmp_path):
    pairs, captions = made_pairs()
    with model_server(template) as (url, _):
        write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
    return tmp_path / "q"


def test_unknown_categories_are_refused_never_guessed(written):
    def answer(prompt, before):
        image = re.search(r"Caption: (\w+) ", prompt).group(1)
        if image == "a1":
            return "Hepatic"
        if image == "a2" and before == 0:
            return "This image belongs to: Pulmonary or maybe something else"
        return "Pulmonary, Head and Neck" if image.startswith("b") else "**pulmonary**."

    with model_server(answer) as (url, log):
        result = categorize_images(read_drafts(written), chat(url), written, AskSettings())
        asked = len(log.asked)
        categorize_images(read_drafts(written), chat(url), written, AskSettings())
        assert len(log.asked) == asked
    assert result["refused"] == {"a1.png": "Hepatic"}
    given = load_categories(written)
    assert given["a2.png"] == ["Pulmonary"]
    assert given["b4.png"] == ["Pulmonary", "Head and Neck"]
    assert "a1.png" not in given
    assert log.asked[0][1].endswith("Categories: " + ", ".join(PROMPT_CATEGORIES))


def test_categories_are_discovered_from_a_list(written):
    reply = (
        "Here are general categories:\n\n1. **Thoracic** - Captions 0, 3\n2. **Head and Neck**: Caption 1\n"
        "- Vascular (2, 4)\n\nCaption 5 fits none."
    )
    with model_server(lambda prompt, before: reply) as (url, log):
        names = discover_categories(read_drafts(written), chat(url), written, AskSettings())
    assert names == ["Thoracic", "Head and Neck", "Vascular"]
    assert log.asked[0][1].count("\nCaption ") == 20
    with (
        model_server(lambda prompt, before: "I cannot.") as (url, log),
        pytest.raises(BadInput, match="no usable reply"),
    ):
        discover_categories(read_drafts(written), chat(url), written, AskSettings(seed=1))
    assert len(log.asked) == 3


def test_patterns_are_asked_with_every_pair(written):
    with model_server(lambda prompt, before: "1. Side of the opacity") as (url, log):
        for _ in range(2):
            assert find_patterns(read_drafts(written), chat(url), written, AskSettings()) == "1. Side of the opacity"
    assert len(log.asked) == 1
    prompt = log.asked[0][1]
    assert "\nPair 9\nFirst image description: " in prompt
    assert "Confusing multiple choice question: Which lung shows the opacity? A: The " in prompt
    assert (written / "patterns.md").read_text() == "1. Side of the opacity\n"


def test_a_journal_has_one_writer(tmp_path):
    """Whatever is asked (writing, fake questions, a blind baseline): replies of two processes would be paid twice and mixed."""

    def generate(requests):
        for each in requests:
            yield Response(each.question_id, each.sample, "yes")
            with pytest.raises(BadInput, match="another process is working on it"):
                put("cd")

    def put(names):
        prompts = {name: name for name in names}
        return ask_once(SimpleNamespace(name="m", generate=generate), prompts, AskSettings(), journal, "asking").keys()

    journal = tmp_path / "replies.jsonl"
    assert put("ab") == {"a", "b"} == {entry["id"] for entry in read_journal(journal)}
