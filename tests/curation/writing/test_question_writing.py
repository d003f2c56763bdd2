"""Test the writing of questions: parsing of replies, rules of prompt A.1, retries and journal; and
facts taken from captions: none goes beyond its caption, and each row is reviewed.
"""

import json
import random
import re
from collections import Counter
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from curation.custom_sets.probe_table import read_probe_table
from curation.writing.asking import (
    CATEGORY_PROMPT,
    DISCOVER_PROMPT,
    PATTERN_PAIR,
    PATTERNS_PROMPT,
    PROMPT_CATEGORIES,
    QUESTION_PROMPT,
    SYSTEM_PROMPT,
    AskSettings,
    ask_once,
    fill_template,
)
from curation.writing.captions import (
    CAPTION_COLUMNS,
    caption_stance,
    categorize_images,
    discover_categories,
    find_patterns,
    load_categories,
    parse_facts,
)
from curation.writing.question_writing import Draft, find_problems, parse_draft, read_drafts, write_questions
from dataset_builders.errors import BadInput
from dataset_builders.files import read_journal
from dataset_builders.terms import normalize_term
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.records.request import Response
from tests.curation.commands import curate
from tests.curation.model_server import model_server
from tests.helpers import refused
from tests.sampling import few

PLAIN_REPLY = (
    "Question: Which lung shows the opacity?\nOption1: The left lung\nOption2: The right lung\nImage1: {}\nImage2: {}"
)

OPTION_TEXTS = [
    ("The left lung", "The right lung"),
    ("≥5 cm", "≤5 cm"),
    ("↑", "↓"),
    ("+", "-"),
    (">50%", "<50%"),
    ("α", "β"),
    ("左肺", "右肺"),
    ("की", "का"),
]
OPTION_FORMS = ["Option{n}: {text}", "option {n}: {text}", "- **OPTION {n}:** {text}"]
ANSWER_FORMS = ["{text}", "Option{n}", "Option {n}", "{n}", "Option {n}: {text}", "Option{n} - {text}.", "{n}) {text}"]
QUESTION_FORMS = ["Question: {}", "**Question:** {}", "### 1. Question:\n{}", "question: {}"]
# Text around the reply. The last two contain a second question, which must not be used.
REPLY_FRAMES = ["{}", "Sure! Here it is.\n\n{}\n\nI hope this helps.", "```\n{}\n```", "Options and answers, e.g. as asked:\n{}",
          "<think>\n" + PLAIN_REPLY.format("The right lung", "The left lung") + "\nNo, swap.\n</think>\n{}",
          "{}\n\nQuestion: Another one?\nOption1: x\nOption2: y\nImage1: x\nImage2: y"]  # fmt: skip


@given(st.randoms(use_true_random=False))
def test_replies_are_parsed_in_any_spelling(rng):
    """Their lines are in any order, with or without Markdown, and other text surrounds them."""
    sides, answer_1 = rng.choice(OPTION_TEXTS), rng.randrange(2)
    question = "Which lung shows the opacity?"

    def fill_form(form, at):
        return form.format(n=at + 1, text=sides[at])

    option_form = rng.choice(OPTION_FORMS)
    lines = [rng.choice(QUESTION_FORMS).format(question), *(fill_form(option_form, at) for at in (0, 1))]
    answers = [fill_form(rng.choice(ANSWER_FORMS), at) for at in (answer_1, 1 - answer_1)]
    lines += [f"{rng.choice(['', '**'])}Image{n + 1}: {answer}" for n, answer in enumerate(answers)]
    frame = rng.choice(REPLY_FRAMES)
    # With a second question in the text, the order of lines tells the two apart.
    if frame.startswith("{}\n\nQuestion") or "Question" not in frame:
        lines = lines if frame.startswith("{}\n\nQ") else rng.sample(lines, 5)
    reply = frame.replace("{}", rng.choice(["\n", "\n\n"]).join(lines))
    assert parse_draft(reply) == (Draft(question, sides, (answer_1, 1 - answer_1)), []), reply


def test_replies_without_a_question_are_refused():
    left_lung, right_lung = "The left lung", "The right lung"
    for reply, reason in (
        ("I cannot help with that.", "no question"),
        ("Question: Which side?\nOption1: left\nImage1: left\nImage2: right", "no option2"),
        ("Question: Which?\nOption1: Left.\nOption2: left\nImage1: left\nImage2: left", "both options read the same"),
        ("Question: Which?\nOption1: l\nOption2: r\nOption3: both\nImage1: l\nImage2: r", "more than two"),
        (PLAIN_REPLY.format(left_lung, right_lung) + "\nImage3: The left lung", "a third image"),
        (PLAIN_REPLY.format("both lungs", right_lung), "neither option"),
        (PLAIN_REPLY.format("The left lung or the right lung", right_lung), "neither option"),
        (PLAIN_REPLY.format("Option1: The right lung", "Option2"), "neither option"),
    ):
        draft, reasons = parse_draft(reply)
        assert draft is None and reason in reasons[0], reply


PAIR_CAPTIONS = (
    "A chest radiograph that shows a dense opacity in the left lower lobe of the lung",
    "A normal chest radiograph of an adult",
)


def test_problems_of_questions_are_found():
    long = "A very large mass with spiculated borders that reaches the wall"
    copied = "Which chest radiograph shows a dense opacity in the left lower lobe of the lung?"
    for question, options, answers, message in (
        ("Which lung?", ("left", "right"), (0, 0), "same for both"),
        ("Which lung is opaque in Image1?", ("left", "right"), (0, 1), "refers to images"),
        ("What differs between the two images?", ("left", "right"), (0, 1), "refers to images"),
        ("Compared to a healthy lung, which is opaque?", ("left", "right"), (0, 1), "refers to images"),
        ("Is the opacity larger than the other?", ("yes", "no"), (0, 1), "refers to images"),
        ("What does the caption say?", ("left", "right"), (0, 1), "refers to images"),
        (copied, ("yes", "no"), (0, 1), "copies"),
        ("Is the opacity in the left lung?", ("left lung", "right lung"), (0, 1), "names one of its options"),
        ("What is seen?", ("Pleural effusion", long), (0, 1), "much longer"),
        # These have no problem, although they look like ones that do.
        ("Which lung shows the opacity in this image?", ("left", "right"), (1, 0), ""),
        ("Is the opacity on the left or the right?", ("left", "right"), (0, 1), ""),
        ("Which kidney is larger than the other kidney?", ("left", "right"), (0, 1), ""),
        ("Which imaging modality was used?", ("CT", "MRI"), (0, 1), ""),
    ):
        problems = find_problems(Draft(question, options, answers), PAIR_CAPTIONS)
        assert any(message in problem for problem in problems) if message else problems == [], question


@pytest.mark.sources
def test_nearly_all_published_drafts_pass(sources):
    """Radiologists worked from drafts of the same prompt: nearly all must pass the rules."""
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


def test_prompts_match_the_paper(papers):
    text = (papers / "mediconfusion_iclr2025.txt").read_text()
    # The extracted text breaks lines and words in other places.
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


def test_placeholders_in_a_caption_are_not_replaced():
    fill_form = fill_template(
        QUESTION_PROMPT, caption_of_image_1="see **CAPTION OF IMAGE 2** {x}", caption_of_image_2="second"
    )
    assert "Image1: see **CAPTION OF IMAGE 2** {x}\nImage2: second\n" in fill_form


def make_pairs(n=12):
    pairs = pd.DataFrame({"i": range(n), "j": range(100, 100 + n), "sim_med": 0.95, "sim_gen": 0.5})
    pairs["image_1"], pairs["image_2"] = [f"a{k}.png" for k in range(n)], [f"b{k}.png" for k in range(n)]
    captions = {f"{side}{k}.png": f"{side}{k} " + "lung seen from the front " * 5 for k in range(n) for side in "ab"}
    # Its pair is left out, because a short caption says too little for a question.
    captions["a3.png"] = "too short"
    return pairs, captions


def reply_to_template(prompt, times_asked):
    """Reply badly first for some pairs, so that every branch is covered."""
    number = int(re.search(r"Image1: a(\d+) ", prompt).group(1))
    good = PLAIN_REPLY.format("The left lung", "The right lung")
    if number == 5:
        return "no question here"
    if number == 6 and times_asked == 0:
        return PLAIN_REPLY.format("The left lung", "The left lung")
    if number == 7 and times_asked < 2:
        return "Question: What do the images show?\nOption1: a\nOption2: b\nImage1: a\nImage2: b"
    return good


def chat(url, **settings):
    model = OpenAIChat("stand-in", Settings(base_url=url, **settings))
    model.first_wait = 0.01
    return model


def test_questions_are_checked_and_requested_again(tmp_path):
    pairs, captions = make_pairs()
    with model_server(reply_to_template) as (url, log):
        funnel = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings(price=(10, 100)))
        request_count = len(log.requests)
        repeated_funnel = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings(price=(10, 100)))
        assert len(log.requests) == request_count  # no reply is paid twice
    assert (
        repeated_funnel == json.loads((tmp_path / "q" / "funnel.json").read_text()) == funnel | {"had_a_question": 10}
    )
    assert all(system == SYSTEM_PROMPT for system, _ in log.requests)
    assert (funnel["pairs"], funnel["short_caption"]) == (12, 1)
    assert funnel["written"] == 10
    assert funnel["not_written"] == {"no question, option1, option2, image1, image2": 1}
    # Eight pairs need one reply, pair 6 needs two, and pairs 5 and 7 need three (the most allowed).
    assert funnel["replies"] == request_count == 8 + 2 + 3 + 3
    assert funnel["cost"] == pytest.approx(request_count * (100 * 10 + 20 * 100) / 1e6)
    drafts = read_drafts(tmp_path / "q")
    assert set(drafts["pair_id"]) == {f"{k}-{100 + k}" for k in range(12) if k not in (3, 5)}
    # The letter of the right option is balanced, so it gives nothing away.
    assert sorted(drafts["correct_1"]) == ["A"] * 5 + ["B"] * 5
    assert (drafts["correct_1"] != drafts["correct_2"]).all()
    for row in drafts.to_dict("records"):
        assert row[f"option_{row['correct_1']}"] == "The left lung"
        assert row[f"option_{row['correct_2']}"] == "The right lung"
    changed = captions | {"a1.png": "a1 " + "something else " * 20}
    assert "about different images or captions" in refused(
        write_questions, pairs, changed, chat(url), tmp_path / "q", AskSettings()
    )


def test_another_model_replaces_drafts_before_reviews_and_no_question_is_an_error(tmp_path):
    pairs, captions = make_pairs()
    with model_server(reply_to_template) as (url, log):
        write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
        request_count = len(log.requests)
        other_model = OpenAIChat("another", Settings(base_url=url))
        funnel = write_questions(pairs, captions, other_model, tmp_path / "q", AskSettings())
        assert funnel["written"] and len(log.requests) == funnel["replies"] > request_count
        drafts = read_drafts(tmp_path / "q")
        # From the first review on, drafts are final.
        (tmp_path / "q" / "reviews.jsonl").touch()
        funnel = write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
        assert funnel["had_a_question"] == 10 and read_drafts(tmp_path / "q").equals(drafts)
        assert "no pairs" in refused(
            write_questions, pairs.iloc[:0], captions, other_model, tmp_path / "q", AskSettings()
        )
    names = sorted({*pairs["image_1"], *pairs["image_2"]})
    (tmp_path / "pairs").mkdir()
    pairs.to_parquet(tmp_path / "pairs" / "pairs.parquet")
    pd.DataFrame({"image": names, "caption": [captions[name] for name in names]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    command = ("write", tmp_path / "pairs", "--table", tmp_path / "table.csv", "--model", "m", "--tries", 1)
    with (
        model_server(lambda prompt, times_asked: "I cannot.") as (url, _),
        pytest.raises(BadInput, match="none of 12 questions could be written"),
    ):
        curate(*command, "--base-url", url, "--out", tmp_path / "none")
    with (
        model_server(reply_to_template) as (url, log),
        pytest.raises(BadInput, match="no two captions have 99999 characters"),
    ):
        curate(*command, "--base-url", url, "--out", tmp_path / "short", "--min-caption", 99999)
    assert not log.requests


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_killed_runs_and_failing_servers_lose_nothing_and_pay_once(tmp_path, seed):
    """Runs over varying pairs are killed anywhere, with good, bad, refused and failed replies.

    A failure is not a try, no pair has more than three tries, and a good question and the letter
    of its answer are final.
    """
    rng = random.Random(seed)
    pairs, captions = make_pairs(9)
    out, tries, good_pairs, letters = tmp_path / "q", Counter(), set(), {}

    class Drawn:
        name = "stand-in"
        kinds = ("good", "good", "bad", "refused", "failed")

        def generate(self, requests):
            for request in requests:
                if rng.random() < 0.1 and len(self.kinds) > 1:
                    raise KeyboardInterrupt
                kind, pair = rng.choice(self.kinds), request.question_id.split()[0]
                assert pair not in good_pairs and tries[pair] < 3
                tries[pair] += kind != "failed"
                good_pairs.update({pair} if kind == "good" else ())
                frame = "\u2028Well\x85now\u2029\n{}\nbye \ud83d"  # other line separators, and a lone surrogate
                text = frame.format(
                    PLAIN_REPLY.format("The left lung", "The right lung") if kind == "good" else "I see a lung."
                )
                status = kind if kind in ("refused", "failed") else "answered"
                yield Response(
                    request.question_id, request.sample, text if status == "answered" else "", status, error=kind
                )

    model = Drawn()
    for run in range(8):
        count = rng.randint(1, 9)
        # The last run is over all pairs, and its model replies well.
        if run == 7:
            model.kinds, count = ("good",), 9
        try:
            funnel = write_questions(
                pairs.head(count), captions, model, out, AskSettings(seed=rng.randrange(9), min_caption=0)
            )
        except KeyboardInterrupt:
            with (out / "journal.jsonl").open("a") as file:
                # A process killed while writing leaves half a line.
                file.write('{"id": "8-108", "status": "ans')
            continue
        drafts = read_drafts(out).set_index("pair_id")["correct_1"].to_dict()
        current_pairs = set(pairs.head(count).apply(lambda row: f"{row['i']}-{row['j']}", axis=1))
        # Good questions of pairs that are not in this run may stay.
        assert drafts.keys() >= good_pairs & current_pairs and drafts.keys() <= good_pairs
        assert funnel["written"] == len(good_pairs & current_pairs)
        assert drafts == {pair: letters.setdefault(pair, letter) for pair, letter in drafts.items()}
    assert set(letters) >= good_pairs and all(
        pair in good_pairs or tries[pair] == 3 for pair in map("{0}-10{0}".format, range(9))
    )
    # Letters stay balanced over all runs.
    assert abs(list(letters.values()).count("A") - list(letters.values()).count("B")) <= 1


@pytest.fixture
def questions_folder(tmp_path):
    pairs, captions = make_pairs()
    with model_server(reply_to_template) as (url, _):
        write_questions(pairs, captions, chat(url), tmp_path / "q", AskSettings())
    return tmp_path / "q"


def test_unknown_categories_are_refused_never_guessed(questions_folder):
    def answer(prompt, times_asked):
        image = re.search(r"Caption: (\w+) ", prompt).group(1)
        # A category that is not in the prompt, in every try.
        if image == "a1":
            return "Hepatic"
        if image == "a2" and times_asked == 0:
            return "This image belongs to: Pulmonary or maybe something else"
        return "Pulmonary, Head and Neck" if image.startswith("b") else "**pulmonary**."

    with model_server(answer) as (url, log):
        document = categorize_images(read_drafts(questions_folder), chat(url), questions_folder, AskSettings())
        request_count = len(log.requests)
        categorize_images(read_drafts(questions_folder), chat(url), questions_folder, AskSettings())
        assert len(log.requests) == request_count
    assert document["refused"] == {"a1.png": "Hepatic"}
    categories = load_categories(questions_folder)
    assert categories["a2.png"] == ["Pulmonary"]
    assert categories["b4.png"] == ["Pulmonary", "Head and Neck"]
    assert "a1.png" not in categories
    assert log.requests[0][1].endswith("Categories: " + ", ".join(PROMPT_CATEGORIES))


def test_categories_are_parsed_from_a_list(questions_folder):
    reply = (
        "Here are general categories:\n\n1. **Thoracic** - Captions 0, 3\n2. **Head and Neck**: "
        "Caption 1\n"
        "- Vascular (2, 4)\n\nCaption 5 fits none."
    )
    with model_server(lambda prompt, times_asked: reply) as (url, log):
        names = discover_categories(read_drafts(questions_folder), chat(url), questions_folder, AskSettings())
    assert names == ["Thoracic", "Head and Neck", "Vascular"]
    assert log.requests[0][1].count("\nCaption ") == 20
    with (
        model_server(lambda prompt, times_asked: "I cannot.") as (url, log),
        pytest.raises(BadInput, match="no usable reply"),
    ):
        discover_categories(read_drafts(questions_folder), chat(url), questions_folder, AskSettings(seed=1))
    # As many requests as there are tries.
    assert len(log.requests) == 3


def test_the_pattern_prompt_has_every_pair(questions_folder):
    with model_server(lambda prompt, times_asked: "1. Side of the opacity") as (url, log):
        for _ in range(2):
            assert (
                find_patterns(read_drafts(questions_folder), chat(url), questions_folder, AskSettings())
                == "1. Side of the opacity"
            )
    assert len(log.requests) == 1
    prompt = log.requests[0][1]
    assert "\nPair 9\nFirst image description: " in prompt
    assert "Confusing multiple choice question: Which lung shows the opacity? A: The " in prompt
    assert (questions_folder / "patterns.md").read_text() == "1. Side of the opacity\n"


def test_a_journal_has_one_writer(tmp_path):
    """Replies of two processes in one journal would be paid twice and mixed."""

    def generate(requests):
        for request in requests:
            yield Response(request.question_id, request.sample, "yes")
            assert "another process is working on it" in refused(put, "cd")

    def put(names):
        prompts = {name: name for name in names}
        return ask_once(SimpleNamespace(name="m", generate=generate), prompts, AskSettings(), journal, "asking").keys()

    journal = tmp_path / "replies.jsonl"
    assert put("ab") == {"a", "b"} == {entry["id"] for entry in read_journal(journal)}


CAPTION = "Frontal chest X-ray with a nodule in the left upper lobe and small effusions. No pneumothorax; the heart is not enlarged."
VALID_REPLY = {
    "organ": "chest", "modality": "X-ray", "normal": False, "absent": ["pneumothorax"],
    "findings": [{"finding": "nodule", "position": "left upper lobe"}, {"finding": "small effusion", "position": ""}],
}  # fmt: skip


def test_a_good_reply_is_a_row_of_the_table():
    expected = {
        "organ": "chest",
        "modality": "X-ray",
        "findings": "nodule; small effusion",
        "positions": "left upper lobe; ",
        "absent": "pneumothorax",
    }
    for reply in (
        json.dumps(VALID_REPLY),
        # Some models write their reasoning first and put the JSON into a block of code.
        f"<think>hm</think> Here:\n```json\n{json.dumps(VALID_REPLY, indent=1)}\n```",
    ):
        assert parse_facts(reply, CAPTION) == expected


@pytest.mark.parametrize(
    "change",
    [
        # Facts that the caption does not state or contradicts, and malformed replies.
        {"findings": [{"finding": "mass", "position": ""}]},
        {"findings": [{"finding": "nodule", "position": "right upper lobe"}]},
        {"findings": [{"finding": "pneumothorax", "position": ""}]},
        {"absent": ["nodule"]},
        {"normal": True},
        {"findings": []},
        {"findings": [{"finding": "nodule; effusions"}]},
        {"findings": "nodule"},
        {"organ": ""},
        {"organ": "knee"},
        {"modality": "CT"},
    ],
)
def test_facts_beyond_the_caption_are_refused(change):
    assert parse_facts(json.dumps(VALID_REPLY | change), CAPTION) is None


@pytest.mark.parametrize(("caption", "is_read"), [("Normal chest film.", True), ("Chest film. Lungs clear.", True), ("Chest film.", False),
                                                  ("Abnormal chest film.", False), ("Chest film, a mass.", False)])  # fmt: skip
def test_an_image_is_normal_only_if_the_caption_says_so(caption, is_read):
    reply = json.dumps({"organ": "chest", "modality": "X-ray", "normal": True, "findings": [], "absent": []})
    assert (parse_facts(reply, caption) is not None) is is_read


@pytest.mark.parametrize(
    ("caption", "stance"),
    [
        ("Chest film with edema.", "stated"), ("No edema.", "denied"), ("Without pleural fluid or edema", "denied"),
        ("Cannot exclude edema.", "doubted"), ("Possible edema.", "doubted"), ("Edema is suspected.", "doubted"),
        ("Resolved edema.", "doubted"), ("History of edema.", "doubted"), ("Edema was ruled out.", "doubted"),
        ("Edema is not seen.", "denied"), ("Edema without effusion.", "stated"), ("Rule out edema.", "doubted"),
        ("No edema. Later film: edema.", "doubted"), ("Effusion, no edema", "denied"), ("Nodule", ""),
        ("Edema versus pneumonia", "doubted"), ("Edema cannot be excluded.", "doubted"), ("Negative for edema", "denied"),
        ("A woman with edema and no fever", "stated"), ("Edema, seen after contrast", "stated"), ("Edema was removed", "doubted"),
        ("The edema is not displaced", "doubted"), ("Edema has improved", "doubted"), ("Edema: absent", "denied"),
    ],
)  # fmt: skip
def test_the_stance_of_a_caption_on_a_finding(caption, stance):
    assert caption_stance("edema", caption) == stance


KEY_NAMES = st.sampled_from(["organ", "modality", "normal", "findings", "absent", "finding", "position"])
JSON_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY_NAMES, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(JSON_DOCUMENTS)
def test_no_reply_adds_facts_to_the_caption(document):
    facts = parse_facts(json.dumps(document), CAPTION)
    # "Effusions" of the caption may become "effusion".
    if facts and facts["findings"] != "No Finding":
        assert set(normalize_term(facts["findings"]).split()) <= {*normalize_term(CAPTION).split(), "effusion"}


def test_from_captions_to_probes(tmp_path):
    """A second run sends no request and keeps edits. Unreviewed rows cannot be used."""
    captions = {f"{k}.png": CAPTION.replace("left", side) for k, side in enumerate(["left", "right", "left"])}
    pd.DataFrame({"image": [*captions, "3.png"], "caption": [*captions.values(), ""]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    out = tmp_path / "findings.csv"

    def answer(prompt, times_asked):
        if times_asked == 0 and "right" in prompt.split("Caption:")[-1]:
            return json.dumps(VALID_REPLY)  # names the other side: refused, so the request is repeated
        side = "right" if "right" in prompt.split("Caption:")[-1] else "left"
        return json.dumps(VALID_REPLY).replace("left", side)

    command = ("captions", tmp_path / "table.csv", "--model", "m", "--out", out, "--base-url")
    with model_server(answer) as (address, log):
        assert "read 3 captions (0 more in earlier calls); 0 got no valid reply" in curate(*command, address)
        request_count = len(log.requests)
        table = pd.read_csv(out, dtype=str, keep_default_na=False)
        assert tuple(table.columns) == CAPTION_COLUMNS and table["positions"].str.split(";").str[0].tolist() == [
            "left upper lobe", "right upper lobe", "left upper lobe",
        ]  # fmt: skip
        assert "3 of 3 rows are not reviewed" in refused(read_probe_table, out)
        # A person corrects the first row by hand.
        table.loc[0, ["findings", "positions", "reviewed"]] = ["small nodule", "left upper lobe", "Dr A"]
        table.to_csv(out, index=False)
        assert "(3 more in earlier calls)" in curate(*command, address) and len(log.requests) == request_count
    table = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert table.loc[0, "findings"] == "small nodule"
    table["reviewed"] = "Dr A"
    table.to_csv(out, index=False)
    probed = read_probe_table(out).images
    assert [[label.text for label in image.absent] for image in probed] == [["pneumothorax"]] * 3
    assert [(finding.text, finding.position) for finding in probed[1].findings] == [
        ("nodule", "right upper lobe"),
        ("small effusion", ""),
    ]
