"""Reviews, agreement, the export and its build, the quality report, and answers without images."""

import hashlib
import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.mediconfusion_export import export_pairs, images_without_licence
from curation.report.blind_baseline import score_blind
from curation.report.quality import (
    blind_metrics,
    measure_quality,
    smallest_difference,
    write_quality_report,
)
from curation.review.review import CHECK_FIELDS, SCORE_FIELDS, ReviewLog, compute_agreement, gwet_ac1
from curation.writing.asking import AskSettings
from curation.writing.question_writing import DRAFTS_FILE, REVIEWS_FILE
from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build, write_sources
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.files import read_journal
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.picture import strip_metadata
from eval_harness.records.request import Response
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from tests.curation.commands import curate, score_pair
from tests.curation.model_server import model_server
from tests.helpers import refused
from tests.sampling import few


@pytest.fixture
def review_folders(tmp_path):
    """Write a questions folder of six drafts over eight images, and the images."""
    questions, images = tmp_path / "questions", tmp_path / "images"
    questions.mkdir()
    (images / "deep").mkdir(parents=True)
    names = [f"{k}.png" for k in range(7)] + ["deep/7.jpg"]
    rng = np.random.default_rng(0)
    for name in names:
        Image.fromarray(rng.integers(0, 256, (24, 24), dtype=np.uint8)).save(images / name)
    rows = []
    for k in range(6):
        image_1, image_2 = names[k], names[k + 1 if k < 5 else 7]
        rows.append(
            {
                "i": k, "j": k + 1, "sim_med": 0.91 + k / 100, "sim_gen": 0.5, "image_1": image_1, "image_2": image_2,
                "pair_id": f"{k}-{k + 1}",
                "caption_1": f"caption of {image_1}", "caption_2": f"caption of {image_2}", "question": f"Which side is number {k}?",
                "option_A": "left", "option_B": "right", "correct_1": "AB"[k % 2], "correct_2": "BA"[k % 2],
            }
        )  # fmt: skip
    pd.DataFrame(rows).to_parquet(questions / DRAFTS_FILE)
    # Categories of two images only; the others get "Other".
    (questions / "categories.json").write_text(
        json.dumps({"images": {"0.png": ["Cerebral", "Vascular"], "1.png": ["Spinal"]}})
    )
    return questions, images


def keyed_pairs(log, out):
    """Map the pair ids of the drafts to those in the exported folder `out`."""
    drafts = {pair_id: pair.draft for pair_id, pair in log.pairs.items()}
    return {
        key: load_pseudonyms(out).id_for("p", f"{draft['image_1']}\0{draft['image_2']}")
        for key, draft in drafts.items()
    }


def expected_decision(reviews):
    """A low score or a no excludes the pair; otherwise one complete review keeps it."""
    values = [[review[name] for name in (*SCORE_FIELDS, *CHECK_FIELDS) if name in review] for review in reviews]
    if any(value == "no" or (value != "yes" and value < 5) for answers in values for value in answers):
        return "rejected"
    return "kept" if any(len(answers) == 5 for answers in values) else "unreviewed"


@pytest.mark.parametrize("seed", few(range(4)))
def test_decisions_follow_reviews_and_survive_torn_lines_and_restarts(review_folders, seed):
    """Three reviewers score and check in any order."""
    rng, log, answers, entry_count = random.Random(seed), ReviewLog(review_folders[0]), {name: {} for name in "ABC"}, 0
    for _ in range(150):
        reviewer, field = rng.choice("ABC"), rng.choice([*SCORE_FIELDS, *CHECK_FIELDS])
        value = rng.choice([*[5, 9, 10] * 9, 4] if field in SCORE_FIELDS else [*["yes"] * 20, "no"])
        entry_count += log.change(reviewer, "0-1", field, value, None) is not None
        answers[reviewer] |= {field: value}
        assert log.pairs["0-1"].decision == expected_decision(answers.values())
        if rng.random() < 0.05 and entry_count:
            with (review_folders[0] / REVIEWS_FILE).open("a") as file:
                # A process killed while writing leaves half a line.
                file.write('{"when": "2026-')
            torn_bytes, log = (review_folders[0] / REVIEWS_FILE).read_bytes(), ReviewLog(review_folders[0])
            assert (
                review_folders[0] / REVIEWS_FILE
            ).read_bytes() == torn_bytes  # reading is allowed while another process writes
            log.change(reviewer, "0-1", "note", f"{rng.random()}", None)
            entry_count += 1
    assert len(read_journal(review_folders[0] / REVIEWS_FILE)) == entry_count


def test_agreement_matches_manual_calculations(review_folders):
    log = ReviewLog(review_folders[0])
    assert compute_agreement(log.scores()).alpha is None
    for k in range(6):
        score_pair(log, "Ada", f"{k}-{k + 1}", 1 + k, 10 - k)
        score_pair(log, "Bo", f"{k}-{k + 1}", 1 + k, 10 - k)
    agreement = compute_agreement(log.scores())
    assert (agreement.reviewers, agreement.problems_shared) == (2, 12)
    assert agreement.alpha == pytest.approx(1)
    assert agreement.ac1 == pytest.approx(1)
    log.change("Cy", "0-1", "score_1", 9, None)  # has not scored the other problem yet: neither keeps nor rejects
    assert compute_agreement(log.scores()).ac1 == pytest.approx(1)
    # Gwet: 9 of 10 items agree on True, one differs; p = .95, pe = .095, AC1 = (.9 - .095) / .905.
    assert gwet_ac1(np.array([[True, True]] * 9 + [[True, False]], object)) == pytest.approx((0.9 - 0.095) / 0.905)
    assert gwet_ac1(np.array([[True, None]], object)) is None


def test_the_builder_reads_the_exported_folder(review_folders, tmp_path):
    questions, images = review_folders
    log = ReviewLog(questions)
    assert "no pair is kept" in refused(export_pairs, "mine", questions, images, tmp_path / "mine")
    # Three pairs are kept and one has a score below 5; two have no review.
    score_pair(log, "Ada", "0-1", 8, 9)
    score_pair(log, "Ada", "1-2", 5, 5)
    score_pair(log, "Ada", "2-3", 9, 4)
    score_pair(log, "Ada", "5-6", 6, 6)
    log.change("Ada", "1-2", "option_A", "to the left", seen="left")
    funnel = export_pairs("mine", questions, images, tmp_path / "mine")
    assert funnel["review"] == {"drafts": 6, "kept": 3, "rejected": 1, "unreviewed": 2, "edited": 1}
    assert funnel["exported"] == 3
    # The exported set has pseudonyms in place of the drafts' ids.
    keyed_ids = keyed_pairs(log, tmp_path / "mine")
    exported_reviews = read_journal(tmp_path / "mine" / REVIEWS_FILE)
    assert {entry["item"] for entry in exported_reviews} == {keyed_ids[pair] for pair in ("0-1", "1-2", "5-6")}
    assert json.loads((tmp_path / "mine" / "statistics.json").read_text()) == {
        "Other": 3,
        "Spinal": 2,
        "Cerebral": 1,
        "Vascular": 1,
    }
    report = build(
        "mediconfusion",
        name="mine",
        source=tmp_path / "mine",
        images=(tmp_path / "mine" / "images",),
        out=tmp_path / "data",
    )
    # The paper's counts hold for the official set only.
    assert not any("paper" in line for line in report.lines)
    assert "pairs: 3" in report.lines
    repository = open_repository(tmp_path / "data")
    assert (repository.name, repository.origin) == ("mine", "custom")
    rows = repository.questions("test").set_index("question_id")
    assert set(rows.index) == {f"{keyed_ids[pair]}-{k}" for pair in ("0-1", "1-2", "5-6") for k in (1, 2)}
    assert list(rows.loc[f"{keyed_ids['1-2']}-1", "options"]) == ["to the left", "right"]
    assert list(rows.loc[f"{keyed_ids['1-2']}-1", "answer"]) == [1]
    assert list(rows.loc[f"{keyed_ids['1-2']}-2", "answer"]) == [0]
    # The options of the draft are kept beside the edited ones.
    assert list(rows.loc[f"{keyed_ids['1-2']}-1", "ai_options"]) == ["left", "right"]
    stored = {case.case_id: case for case in repository.cases("test")}
    assert set(stored[keyed_ids["5-6"]].images.values()) == {
        strip_metadata((images / name).read_bytes()) for name in ("5.png", "deep/7.jpg")
    }
    assert "already exists" in refused(export_pairs, "mine", questions, images, tmp_path / "mine")
    # Replace one exported image by another.
    next((tmp_path / "mine" / "images").iterdir()).write_bytes((images / "6.png").read_bytes())
    assert "is a different image" in refused(
        build, "mediconfusion", name="mine", source=tmp_path / "mine", out=tmp_path / "other"
    )
    assert not (tmp_path / "other").exists()


def test_licence_and_source_of_each_image_reach_the_built_dataset(review_folders, tmp_path):
    """They come from the user's table or from ROCO's files, and determine what may be published."""
    from datasets import load_dataset

    from curation.images.image_index import list_images
    from curation.images.image_table import align_to_images, read_image_table
    from dataset_builders.hub.publish import select_dataset_files

    questions, images = review_folders
    log = ReviewLog(questions)
    for keyed_ids in log.pairs:
        score_pair(log, "Ada", keyed_ids, 9, 9)
    (tmp_path / "captions.txt").write_text("".join(f"{Path(name).stem}\tsays\n" for name in list_images(images)))
    (tmp_path / "licences.txt").write_text(
        "ROCO_ID,PMC_ID,CC\n0,PMC11_fig-1.jpg,CC BY-NC\n1,PMC11_fig-2.jpg,NO-CC CODE\n2,PMC12_g.jpg,CC BY\n"
    )
    roco = read_image_table(tmp_path / "captions.txt").set_index("image")
    assert roco.loc["1"].tolist() == ["says", "PMC11", "unknown", "PMC11_fig-2.jpg"]
    assert roco.loc["7"].tolist() == ["says", "", "", ""]
    own_table = tmp_path / "own.csv"
    own_table.write_text(
        "image,license,source\n" + "".join(f"{name},CC BY 4.0,Ward {k}\n" for k, name in enumerate(list_images(images)))
    )
    # ROCO's file gives a licence to two of the seven images in use, the own table to all.
    for table, restricted, license, source in (
        (tmp_path / "captions.txt", 5, "CC BY-NC", "PMC11_fig-1.jpg"),
        (own_table, 0, "CC BY 4.0", "Ward 0"),
    ):
        out, data = tmp_path / f"export-{table.stem}", tmp_path / f"data-{table.stem}"
        export_pairs("mine", questions, images, out, metadata=align_to_images(list_images(images), table))
        assert len(images_without_licence(out)) == restricted
        build("mediconfusion", name="mine", source=out, out=data)
        with pytest.raises(BadInput, match=r"de-identified.*about\.yaml"):
            select_dataset_files(data, "ORG/mine", private=True)
        (out / "about.yaml").write_text("deidentification: drawn by a program\napproval: none needed\n")
        build("mediconfusion", name="mine", source=out, out=data)
        assert "- **Deidentification:** drawn by a program" in (data / "README.md").read_text()
        rows = (
            load_dataset(str(data), split="test", cache_dir=str(tmp_path / "cache"))
            .to_pandas()
            .set_index("question_id")
        )
        keyed_ids = keyed_pairs(log, out)
        row = rows.loc[f"{keyed_ids['0-1']}-1"]
        assert (row["image_license"], row["image_source"]) == (license, source)
        assert row["image"]["bytes"] == strip_metadata((images / "0.png").read_bytes())
        if restricted:
            assert rows.loc[f"{keyed_ids['1-2']}-1", "image_license"] == "unknown"
            assert "private" in refused(select_dataset_files, data, "ORG/mine", private=False)
        assert select_dataset_files(data, "ORG/mine", private=bool(restricted))[0]


def test_the_quality_report_finds_planted_faults(review_folders, tmp_path):
    questions, images = review_folders
    # The planted fault: one image under two names.
    (images / "3.png").write_bytes((images / "0.png").read_bytes())
    export_pairs("mine", questions, images, tmp_path / "mine", unreviewed=True)
    report = measure_quality(
        build("mediconfusion", name="mine", source=tmp_path / "mine", out=tmp_path / "data").folder
    )
    pairs = report.of_pairs
    assert (pairs.pairs, report.images, pairs.components, pairs.largest_component) == (6, 7, 1, 6)
    values = [
        [scores[name]["value"] for name in ("set_accuracy", "individual_accuracy")] for scores in report.rules.values()
    ]
    # Rules that see only the text answer both questions of a pair alike: one is always wrong.
    assert values[:4] == [[0, 50]] * 4
    assert pairs.effective_pairs == 1 and any("perfect model cannot be told" in text for text in report.warnings())
    assert pairs.image_1_is_a == 3
    assert len(report.same_images) == 1
    assert report.images_seen == 7
    write_quality_report(replace(report, name="mine <script>"), tmp_path / "q.html")
    page = (tmp_path / "q.html").read_text()
    assert "mine &lt;script&gt;" in page
    assert json.loads((tmp_path / "q.json").read_text())["warnings"] == report.warnings()


@pytest.mark.sources
def test_quality_of_the_real_mediconfusion(sources, tmp_path):
    built = build("mediconfusion", source=sources / "mediconfusion", out=tmp_path / "data", text_only=True)
    report = measure_quality(built.folder)
    pairs = report.of_pairs
    # The paper's 176 pairs share images, so they form fewer independent groups.
    assert (pairs.pairs, report.images, pairs.components, pairs.largest_component) == (176, 228, 60, 25)
    assert min(pairs.sim_med) == pytest.approx(0.9, abs=1e-3)


def test_the_smallest_difference_has_a_power_of_80_percent():
    """Simulation: two models that differ by this much are distinguished in about 80% of draws."""
    rng = np.random.default_rng(0)
    n, discordant = 176, 0.3
    d = smallest_difference(n, discordant) / 100
    draws = rng.multinomial(n, [(discordant + d) / 2, (discordant - d) / 2, 1 - discordant], 20_000)
    better, worse = draws[:, 0], draws[:, 1]
    is_significant = np.abs(better - worse) / np.sqrt(np.maximum(1, better + worse)) > 1.959964
    assert is_significant.mean() == pytest.approx(0.8, abs=0.03)
    assert [smallest_difference(pair_count, 0.15) for pair_count in (1, 2, 10, 40)] == [None] * 4
    assert 8 <= smallest_difference(176, 0.15) <= 12
    assert 3 <= smallest_difference(1000, 0.3) <= 5


@pytest.fixture
def source(phantoms):
    return phantoms / "mediconfusion"


def quality(source, out, url):
    output = curate("quality", source, "--out", out, "--model", "stand-in", "--base-url", url)
    return output, json.loads(out.with_suffix(".json").read_text())


def hash_letter(prompt):
    """Answer from the text alone, so that both images of a pair get the same answer."""
    return "AB"[hashlib.sha256(prompt.encode()).digest()[0] % 2]


def blind_score(numbers, metric):
    return numbers["blind_model"]["scores"][metric]["value"]


def test_a_model_with_one_answer_per_text_gets_no_pair(source, tmp_path):
    out = tmp_path / "q.html"
    with model_server(lambda prompt, times_asked: f"The answer is {hash_letter(prompt)}.") as (url, log):
        output, numbers = quality(source, out, url)
        request_count = len(log.requests)
        # A second call takes the replies from the journal.
        repeated_output, repeated_numbers = quality(source, out, url)
        assert len(log.requests) == request_count == 2 * numbers["of_pairs"]["pairs"]
    assert all("image_url" not in prompt for _, prompt in log.requests)
    assert repeated_numbers == numbers
    assert repeated_output == output
    # One answer for both images is right for one of them: half the questions, but no pair.
    assert [blind_score(numbers, name) for name in ("set_accuracy", "individual_accuracy", "confusion")] == [0, 50, 100]
    scores = numbers["blind_model"]["scores"]
    assert scores["set_accuracy"]["chance"] == 25
    assert scores["individual_accuracy"]["low"] <= 50 <= scores["individual_accuracy"]["high"]
    assert "stand-in without images: 50.0 % (chance 50.0)" in output
    assert "stand-in, shown no image" in out.read_text()
    assert not any("gives answers away" in line for line in numbers["warnings"])


@pytest.mark.parametrize(
    # A refusal is a wrong answer, while a reply without an answer has no score.
    ("reply", "accuracy", "warning"),
    [("I cannot answer this without the image.", 0, "count as wrong"), ("What a picture.", None, "it has no score")],
)
def test_refusals_are_counted_not_guessed(source, tmp_path, reply, accuracy, warning):
    with model_server(lambda prompt, times_asked: reply) as (url, _):
        _, numbers = quality(source, tmp_path / "q.html", url)
    assert blind_score(numbers, "invalid") == 100
    assert blind_score(numbers, "individual_accuracy") == accuracy
    assert numbers["blind_model"]["scores"]["confusion"]["value"] is None
    assert any("gave no answer" in line and warning in line for line in numbers["warnings"])


def test_a_model_that_memorized_the_answers_is_reported(source, tmp_path):
    questions = open_repository(source).questions("test").set_index("question_id")["answer"]

    # It looks the question's id up in the answer key.
    class ByHeart:
        name = "by heart"

        def generate(self, requests):
            for request in requests:
                yield Response(request.question_id, 0, "AB"[questions[json.loads(request.question_id)[2]][0]])

    asking = AskSettings(temperature=0)
    report = measure_quality(
        source, partial(score_blind, model=ByHeart(), journal=tmp_path / "blind.jsonl", asking=asking)
    )
    assert report.blind_model.scores["set_accuracy"]["value"] == 100
    assert any("by heart gets 100.0 % (individual accuracy)" in line for line in report.warnings())


@pytest.mark.parametrize("family", few(BENCHMARKS, 2))
def test_a_blind_rule_has_the_score_of_the_harness(family, phantoms, tmp_path):
    folder = phantoms / family
    report = measure_quality(folder)
    run = run_evaluation(
        EvalConfig(family, "baseline:always-A", str(folder), split=report.split, out=tmp_path / "run")
    )[0]
    for metric in blind_metrics(family):
        assert report.rules["always the first option"][metric] == run.scores[metric].model_dump()
    assert report.questions == len(open_repository(folder).questions(report.split))


def test_a_text_that_gives_the_answer_away_is_reported(tmp_path):
    """The wording depends on the answer, so the questions about other images give it away."""
    write_sources("probmed", tmp_path / "source")
    rows = json.loads((tmp_path / "source" / "probmed.json").read_text())
    for row in rows:
        row["question"] = f"Is {'this' if row['answer'] == 'yes' else 'that'} shown?"
    (tmp_path / "source" / "probmed.json").write_text(json.dumps(rows))
    folder = build("probmed", source=tmp_path / "source", out=tmp_path / "data").folder
    report = measure_quality(folder)
    rule = "what is most often right for this text elsewhere in the set"
    assert next(iter(report.rules[rule].values()))["value"] == 100
    assert any(line.startswith(f"{rule} gets 100.0") for line in report.warnings())
    assert any("asked more than once" in line for line in report.warnings())
