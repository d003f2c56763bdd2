"""Probes from generated tables: what is asked as absent is known to be absent, and the text alone
does not give answers away.
"""

import json
import random
import re
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.custom_sets.probe_table import excludes_position, read_probe_table
from curation.custom_sets.probing import Fact, balance_pairs, build_probes, text_only_accuracy
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.label_reading import parse_finding
from dataset_builders.terms import (
    ancestors,
    applies_in_context,
    find_modalities,
    find_regions,
    modalities_disjoint,
    normalize_term,
    parse_image_context,
    regions_disjoint,
    terms_by_name,
)
from tests.curation.commands import curate
from tests.helpers import refused
from tests.sampling import few

SITE_FINDINGS = {
    ("chest", "X-ray"): ("pneumonia", "lung opacity", "pulmonary consolidation", "ground-glass opacity", "crazy paving pattern",
                         "pneumothorax", "deep sulcus sign", "pleural effusion", "hydrothorax", "cardiomegaly", "pulmonary nodule"),
    ("chest", "CT"): ("pulmonary nodule", "crazy paving pattern", "ground-glass opacity", "bronchiectasis", "pulmonary embolism"),
    ("abdomen", "CT"): ("kidney stone", "staghorn calculus", "hydronephrosis", "acute pancreatitis", "pancreatitis", "gallstones"),
    ("brain", "MRI"): ("glioma", "glioblastoma", "hydrocephalus", "normal pressure hydrocephalus", "cerebral infarction"),
    ("knee", "MRI"): ("joint effusion", "meniscal tear", "knee osteoarthritis", "Baker cyst"),
    ("retina", "fundus photography"): ("diabetic retinopathy", "drusen", "glaucoma"),
}  # fmt: skip
DOUBTFUL_LABELS = (
    "no {}", "possible {}", "{}?", "{} (-)", "- {}", "{} -", "rule out {}", "resolved {}", "history of {}", "cannot exclude {}", "{}/{}",
    "without {}", "{} vs artifact", "probable {}", "clear lungs", "normal study", "unremarkable", "s/p {}", "negative for {}", "{}: 0",
    "no evidence of {}", "{} unlikely", "{} not seen", "?{}", "{} +", "known {}", "old {}", "{} 40%",
    "hardly any {}", "{} refuted", "in 2019 {}", "pseudo{}",
)  # fmt: skip


def concept_lineage(name):
    return {name, *ancestors("finding", name)}


def generate_table(rng, count):
    """Generate a table with negation, doubt, laterality and nesting.

    Returns the rows, and for each image the concepts of all its findings, even of those that the
    table does not name.
    """
    rows, truth = [], {}
    for number in range(count):
        organ, modality = rng.choice(list(SITE_FINDINGS))
        site_findings = SITE_FINDINGS[organ, modality]
        present = set() if rng.random() < 0.25 else set(rng.sample(site_findings, rng.choice([1, 1, 2, 3])))
        truth[f"{number}.png"] = {concept for name in present for concept in concept_lineage(name)}
        # A table need not name every finding of an image.
        labelled = [name for name in sorted(present) if rng.random() < 0.8]
        labels = []
        for name in labelled:
            term = terms_by_name("finding")[normalize_term(name)]
            bare = term.bare if applies_in_context(term, parse_image_context([organ], modality)) else ()
            label = rng.choice([name, *term.synonyms, *bare, *bare])
            labels.append(rng.choice(["", "", "left ", "right "]) + rng.choice([label, label.upper(), label.title()]))
        # The other images without findings get an empty cell, which means unknown.
        if not present and rng.random() < 0.7:
            labels = [rng.choice(["No Finding", "normal"])]
        elif rng.random() < 0.5:
            labels.insert(
                rng.randrange(len(labels) + 1), rng.choice(DOUBTFUL_LABELS).format(*[rng.choice(site_findings)] * 2)
            )
        absent = [name for name in site_findings if name not in truth[f"{number}.png"] and rng.random() < 0.5]
        # Labels that say nothing about presence must not count as absent findings.
        if rng.random() < 0.2:
            absent.append(rng.choice(["no pneumonia", "possible glioma", "clear", "drusen?"]))
        rows.append(
            {
                "image": f"{number}.png",
                "organ": organ,
                "modality": modality,
                "findings": "; ".join(labels),
                "absent": ";".join(absent),
            }
        )
    return rows, truth


def write_table(path, rows):
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("seed", few(range(2)))
def test_answers_agree_with_the_findings(seed, balanced, tmp_path):
    table, truth = generate_table(random.Random(seed), 120)
    probe_table = read_probe_table(write_table(tmp_path / "t.csv", table))
    rows, _ = build_probes(probe_table.images, seed, balanced)
    by_image = {row["image"]: row for row in table}
    answer_counts = Counter()
    for row in rows:
        table_row, present_concepts, aspect = by_image[row["image"]], truth[row["image"]], row["qa_type"].split("_")[0]
        match = re.fullmatch(r".*(?:show|modality of this image)(?: the)? (.*)\?", row["question"])
        # Counted to check at the end that each aspect has both answers.
        answer_counts[aspect, row["answer"]] += 1
        if aspect == "abnormality":
            assert row["answer"] == ("yes" if present_concepts else "no")
        elif aspect == "entity":
            term = parse_finding(match[1], parse_image_context([table_row["organ"]], table_row["modality"])).term
            if term is None:  # not in the vocabulary, only in its table ("left heart enlargement")
                assert row["answer"] == "yes" and match[1].casefold() in table_row["findings"].casefold()
            else:
                assert (row["answer"] == "yes") == (term.concept in present_concepts), (row, present_concepts)
        elif aspect == "body":
            assert (row["answer"] == "yes") == (match[1] == table_row["organ"])
            assert row["answer"] == "yes" or regions_disjoint(
                find_regions(table_row["organ"]),
                find_regions(match[1]),
            )
        else:
            assert aspect == "modality"
            assert (row["answer"] == "yes") == (match[1] == table_row["modality"])
            assert row["answer"] == "yes" or modalities_disjoint(
                find_modalities(table_row["modality"]), find_modalities(match[1])
            )
    assert all(
        answer_counts[aspect, answer]
        for aspect in ("entity", "abnormality", "body", "modality")
        for answer in ("yes", "no")
    )
    label_counts = Counter(
        label.strip() for row in table for label in (row["findings"] + ";" + row["absent"]).split(";")
    )
    # Every doubtful label must be counted as skipped.
    assert probe_table.skipped.total() >= sum(
        n
        for label, n in label_counts.items()
        if re.search(r"\?|\(-\)|^- |^no |possible|clear", label) and label != "No Finding"
    )
    assert build_probes(probe_table.images, seed, balanced)[0] == rows


@pytest.mark.parametrize("seed", few(range(2)))
def test_a_text_only_reader_gets_at_most_five_points_over_chance(seed, tmp_path):
    table, _ = generate_table(random.Random(f"text {seed}"), 200)
    images = read_probe_table(write_table(tmp_path / "t.csv", table)).images
    rows, _ = build_probes(images, seed)
    assert len(rows) > 100
    assert max(text_only_accuracy(rows).values()) <= 55
    # Without balancing, the same reader does better: the measure is able to detect the effect.
    free, _ = build_probes(images, seed, balanced=False)
    assert max(text_only_accuracy(free).values()) > 55


ORGAN_LINES = """
wrist; hand; finger; thumb
elbow; forearm
ankle; foot; toe
knee
brain; head; skull; face; orbit; macula; retina; optic disc
chest; lung; heart; liver; kidney; abdomen; breast
nail; skin
"""
"""Organs; an image of one organ may also show the others of its line."""
MODALITY_LINES = """
X-ray; CR; KUB; CXR; fluoroscopy; radiograph; chest x-ray
CT; CTA; CBCT
MRI; T1; T2; FLAIR; MRA
PET; SPECT
ultrasound; Doppler; echocardiography
photography; clinical photograph; dermoscopy; endoscopy; colonoscopy; bronchoscopy; histopathology; cytology; smear
OCT; OCTA
"""
"""Modalities; those of a line do not exclude each other: one may be a kind of another, or both
kinds of a third.
"""
SYNONYM_MODALITIES = [{"X-ray", "radiograph"}]


@pytest.mark.parametrize("seed", few(range(3)))
def test_kinds_and_parts_are_never_asked_as_absent(seed, tmp_path):
    """A kind or part is never asked about as absent on images of the whole or of its siblings."""
    rng = random.Random(seed)
    organs, modalities = (
        [line.split("; ") for line in text.strip().splitlines()] for text in (ORGAN_LINES, MODALITY_LINES)
    )
    rows = [
        {"image": f"{n}.png", "organ": rng.choice(rng.choice(organs)), "modality": rng.choice(rng.choice(modalities)), "findings": ""}
        for n in range(150)
    ]  # fmt: skip
    table_rows = {row["image"]: row for row in rows}
    probes, _ = build_probes(
        read_probe_table(write_table(tmp_path / "t.csv", rows)).images,
        seed,
        balanced=False,
    )
    assert len(probes) > 200
    for row in probes:
        column = "modality" if row["qa_type"].startswith("modality") else "organ"
        asked_term = re.fullmatch(
            r"(?:Is the modality of this image|Does this image show the) (.*)\?", row["question"]
        )[1]
        image_term = table_rows[row["image"]][column]
        if row["answer"] == "yes":
            assert image_term == asked_term or {image_term, asked_term} in SYNONYM_MODALITIES
        else:
            assert not any(
                {image_term, asked_term} <= set(line) for line in (modalities if column == "modality" else organs)
            )


def probe_answers(tmp_path, rows, **options):
    rows = [
        {"image": f"{n}.png", "organ": "chest", "modality": "X-ray", "findings": "", "absent": "", "positions": ""}
        | row
        for n, row in enumerate(rows)
    ]
    probes, _ = build_probes(
        read_probe_table(write_table(tmp_path / "t.csv", rows)).images, 0, balanced=False, **options
    )
    return {(row["image"], row["question"]): row["answer"] for row in probes}


UNRELATED_FINDINGS = """
crazy paving|ground glass
deep sulcus sign|pneumothorax
staghorn calculus|kidney stone
pneumonia|consolidation
infiltrate|pneumonia
nodule|mass
lung nodule|calcified lung nodule
GGO|ground-glass opacity
PE|pulmonary embolism
airspace disease|consolidation
hepatomegaly|enlarged liver
meningioma|mass
pneumoperitoneum|free air
cerebral infarction|hypodensity
pleural effusion|blunted costophrenic angle
pneumothorax|collapsed lung
lymphedema|soft tissue swelling
mole|melanocytic nevus
hernia|pneumothorax
emphysema|effusion
cardiomegaly|pleural effusion
our sign|another sign
""".strip().splitlines()  # fmt: skip


def test_findings_without_a_known_exclusion_are_not_asked(tmp_path):
    """These findings do not exclude each other, so nothing is known to be absent, and the table is
    refused.
    """
    for pair in UNRELATED_FINDINGS:
        finding, other_finding = pair.split("|")
        with pytest.raises(BadInput, match=r"no question can be asked|has the answer"):
            # Both findings occur equally often, so balancing is not the reason for the refusal.
            probe_answers(tmp_path, [{"findings": finding}, {"findings": other_finding}] * 3)


def test_absent_findings_come_from_the_column_an_exclusion_or_another_organ(tmp_path):
    answers = probe_answers(tmp_path, [
        {"findings": "cardiomegaly", "absent": "pneumonia; our sign"},
        {"findings": "small heart"},
        {"findings": "pneumonia; our sign"},
        {"organ": "knee", "findings": "meniscal tear"},
        {"findings": "left pleural effusion", "absent": "right pleural effusion; effusion; lung opacity; no atelectasis"},
        {"findings": "right pleural effusion; atelectasis; opacity; pleural effusion"},
    ])  # fmt: skip
    denied = defaultdict(set)
    for (image, question), answer in answers.items():
        if answer == "no" and "Does this image show" in question and "the" not in question.split():
            denied[image].add(question[len("Does this image show ") : -1])
    # By the column `absent`, by exclusion (small heart), and by another organ (meniscal tear).
    assert denied["0.png"] <= {"pneumonia", "our sign", "small heart", "meniscal tear"} and denied["0.png"]
    assert denied["1.png"] <= {"cardiomegaly", "meniscal tear"}
    # Pneumonia excludes no other chest finding of the table, so only the knee's finding is left.
    assert denied["2.png"] == {"meniscal tear"}
    assert denied["3.png"] <= {
        "cardiomegaly",
        "small heart",
        "pneumonia",
        "left pleural effusion",
        "right pleural effusion",
        "pleural effusion",
        "atelectasis",
    }
    assert denied["4.png"] <= {"right pleural effusion", "lung opacity", "meniscal tear"}


@pytest.mark.parametrize("balanced", [True, False])
def test_absent_findings_of_the_same_organ_are_preferred(balanced, tmp_path):
    rows = [
        {
            "image": f"{n}.png",
            "organ": organ,
            "modality": "X-ray",
            "findings": organ_findings[n % 2],
            "absent": organ_findings[1 - n % 2],
        }
        for organ, organ_findings in (
            # Within an organ, each finding is stated to be absent where the other is present.
            ("chest", ("pneumonia", "pneumothorax")),
            ("knee", ("joint effusion", "Baker cyst")),
        )
        for n in (range(8) if organ == "chest" else range(8, 16))
    ]
    probes, _ = build_probes(
        read_probe_table(write_table(tmp_path / "t.csv", rows)).images,
        0,
        balanced,
    )
    chest_questions = {"Does this image show pneumonia?", "Does this image show pneumothorax?"}
    adversarial_probes = [row for row in probes if row["qa_type"].startswith("entity_hallu")]
    assert len(adversarial_probes) == 16
    assert all(
        (row["question"] in chest_questions) == (row["image_type"] == "chest_xray") for row in adversarial_probes
    )


def test_missing_columns_are_refused_and_unused_ones_named(tmp_path):
    row = {"image": "a.png", "organ": "chest", "modality": "X-ray"}
    for name in ("finding", "Findings ", "find"):
        assert "no column 'findings'" in refused(
            read_probe_table, write_table(tmp_path / "t.csv", [row | {name: "mass"}])
        )
    probe_table = read_probe_table(
        write_table(
            tmp_path / "t.csv",
            [row | {"findings": "mass", "absents": "3", "Patient ID": "7"}],
        )
    )
    assert probe_table.unused == ["absents", "Patient ID"]


def test_a_finding_that_its_organ_cannot_show_is_skipped_and_excludes_nothing(tmp_path):
    path = write_table(
        tmp_path / "t.csv",
        [{"image": "a.png", "organ": "knee", "modality": "X-ray", "findings": "pneumonia; fracture"}],
    )
    probe_table = read_probe_table(path)
    assert [finding.text for finding in probe_table.images[0].findings] == ["fracture"]
    assert probe_table.images[0].place == parse_image_context([], "") and list(probe_table.skipped) == [
        ("pneumonia", "cannot be on an image of the knee")
    ]


@pytest.mark.parametrize("seed", range(8))
def test_pairs_are_balanced_and_maximal(seed):
    """Compare with brute force: each text is equally often present and absent, and no pairing is
    larger.
    """
    from itertools import product

    rng = random.Random(seed)
    texts = "abcd"[: rng.randrange(2, 5)]
    facts = []
    for number in range(rng.randrange(1, 6)):
        present = rng.choice(texts)
        absent = tuple(text for text in texts if text != present and rng.random() < 0.7)
        facts.append(Fact(f"i{number}", "", present, absent))

    def balanced(choice):
        count = Counter(fact.text for fact, text in zip(facts, choice, strict=True) if text)
        count.subtract(text for text in choice if text)
        return not any(count.values())

    # Try every combination: each fact gets one of its absent texts, or none.
    largest = max(
        sum(map(bool, choice)) for choice in product(*((None, *fact.absent) for fact in facts)) if balanced(choice)
    )
    pairs = balance_pairs(facts, seed)
    assert len(pairs) == largest
    assert balanced([pairs.get((fact.image, fact.key)) for fact in facts])
    assert all(pairs[fact.image, ""] in fact.absent for fact in facts if (fact.image, "") in pairs)


EXCLUSIVE_POSITIONS = """
upper left | lower left
left lung | right lung
left lower lobe | right upper lobe
left ventricle | right ventricle
right upper quadrant | right lower quadrant
frontal lobe | temporal lobe
cerebellum | pons
apex of the lung | base of the lung
upper left part of the image | lower left part of the image
anterior mediastinum | posterior mediastinum
"""
COMPATIBLE_POSITIONS = """
left lung | upper lobe
bilateral | left
bilaterally | right
left part of the image | right lung
left side of the figure | right lung
left lobe of the liver | right upper quadrant
apex of the heart | lower part of the heart
apex of the prostate | inferior prostate
temporo-occipital | temporal lobe
fronto-temporal | frontal
middle | upper
right middle lobe | right lower zone
lower lobe of the left lung | left mid zone
extensive, left | right
predominantly left | right
mostly in the left lung | right lung
worse on the left | right
crossing the midline to the right | left
left anterior descending artery | right
right paratracheal | left mediastinum
upper arm | lower arm
right of the midline | left
"""


def test_which_positions_exclude_one_another():
    for text, expected in ((EXCLUSIVE_POSITIONS, True), (COMPATIBLE_POSITIONS, False)):
        for line in text.strip().splitlines():
            position, candidate = line.split(" | ")
            # Exclusion must be symmetric.
            assert excludes_position(position, candidate) is excludes_position(candidate, position) is expected, line


def test_boxes_that_match_nothing_are_counted(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        Image.fromarray(rng.integers(0, 256, (90, 90), dtype=np.uint8)).save(tmp_path / "images" / f"{number}.png")
    rows = [
        {"image": f"{n}.png", "findings": "Infiltration;Hernia" if n % 2 else "Cardiomegaly", "group": n // 2}
        for n in range(12)
    ]
    write_table(tmp_path / "table.csv", rows)
    boxes = [
        # The boxes use another form of the finding's name than the table, as ChestX-ray14 does.
        *((f"{n}.png", "Infiltrate", 5 if n % 4 == 1 else 60, 5, 20, 20) for n in range(1, 12, 2)),
        # an image that is not in the table, and two findings that their images do not have
        ("99.png", "Infiltrate", 1, 1, 5, 5),
        ("1.png", "Hernias of the hiatus", 1, 1, 5, 5),
        ("2.png", "Mass", 1, 1, 5, 5),
    ]
    columns = ("image", "finding", "x", "y", "width", "height")
    write_table(tmp_path / "boxes.csv", [dict(zip(columns, box, strict=True)) for box in boxes])
    line = (
        f"probe {tmp_path / 'table.csv'} --images {tmp_path / 'images'} --organ chest --modality X-ray --no-text-search"
    )
    line += f" --boxes {tmp_path / 'boxes.csv'}"
    output = curate(line, "--out", tmp_path / "o")
    assert (
        "boxes: 6 give a position, 0 lie across" in output
        and "1 are of images that are not in the table, 2 match no finding" in output
    )
    probes = json.loads((tmp_path / "o" / "probmed.json").read_text())
    assert sum(row["qa_type"].startswith("grounding_gt") for row in probes) == 6
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["text_only_majority"]["overall"] <= 55
    report = build("probmed", name="o", source=tmp_path / "o", out=tmp_path / "data")
    assert "Without the image" in (tmp_path / "data" / "README.md").read_text() and any(
        "chance: 50" in line for line in report.lines
    )
    for rows, message in (("3.png,Infiltrate,0,80,40,40", "leaves its image"), ("3.png,Infiltrate,0,x,4,4", "row 1")):
        (tmp_path / "boxes.csv").write_text(f"image,finding,x,y,width,height\n{rows}\n")
        with pytest.raises(BadInput, match=message):
            curate(line, "--out", tmp_path / "q")
