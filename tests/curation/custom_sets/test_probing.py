"""Probes whose truths hold, over generated hospitals: what is asked as absent is ruled out, and no text pays."""

import csv
import json
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from PIL import Image

from curation.custom_sets.balance import Fact, balanced_pairs, text_only
from curation.custom_sets.body_regions import excludes_organ
from curation.custom_sets.boxes import PARTS, position_of, shares
from curation.custom_sets.exclusion import (
    excludes_finding,
    excludes_modality,
    excludes_position,
    same_term,
)
from curation.custom_sets.probe_table import Probed
from curation.custom_sets.probing import ASPECT_OF, probe
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from tests.curation.commands import curate

NIH = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Hernia",
)
ORGANS = {"chest": ("lung nodule", "Pulmonary Nodules", "pleural effusion", "cardiomegaly", "hernia"),
          "brain": ("hydrocephalus", "infarct", "hemorrhage", "aneurysm"),
          "knee": ("fracture", "joint effusion", "meniscal tear")}  # fmt: skip


def films(rng, count):
    """One organ, one modality, many findings, most of them rare: ChestX-ray14's kind."""
    weights = [2 ** -(k / 2) for k in range(len(NIH))]
    for number in range(count):
        few = tuple(dict.fromkeys(rng.choices(NIH, weights, k=rng.choice([0, 1, 1, 2]))))
        yield Probed(f"{number}.png", "chest", "X-ray", few, ("",) * len(few))


def ward(rng, count):
    """Several organs and modalities, positions in words, spelled as doctors do."""
    for number in range(count):
        organ = rng.choice(list(ORGANS))
        few = tuple(rng.sample(ORGANS[organ], rng.choice([0, 1, 1, 2])))
        if {"lung nodule", "Pulmonary Nodules"} <= set(few):
            few = few[:1]
        positions = tuple(f"{rng.choice(['upper', 'lower'])} {rng.choice(['left', 'right'])}" for _ in few)
        modality = rng.choice(["CT", "MRI", "X-ray", "radiograph", "PET/CT"])
        yield Probed(f"{number}.png", organ, modality, few, positions)


def boxed(rng, count):
    """Findings with boxes, whose parts are what the positions say."""
    for image in films(rng, count):
        positions, touched = [], []
        for _ in image.findings:
            box = (rng.randrange(0, 700), rng.randrange(0, 700), rng.randrange(40, 320), rng.randrange(40, 320))
            positions.append(position_of([box], (1024, 1024)))
            touched.append(frozenset(part for part, share in shares(box, (1024, 1024)).items() if share > 0))
        yield Probed(image.image, image.organ, image.modality, image.findings, tuple(positions), tuple(touched))


SOURCES = {"films": films, "ward": ward, "boxed": boxed}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_of_the_text_alone_gets_no_more_than_chance_and_five_points(source, seed):
    images = list(SOURCES[source](random.Random(f"{source} {seed}"), 240))
    rows, left_out = probe(images, seed)
    assert len(rows) > 100
    scores = text_only(rows, ASPECT_OF)
    assert max(score for readers in scores.values() for score in readers.values()) <= 55
    # The same, counted another way: per text, and per last word within an aspect.
    for key in (lambda row: row["question"], lambda row: (row["qa_type"].split("_")[0], row["question"].split()[-1])):
        answers = defaultdict(Counter)
        for row in rows:
            answers[key(row)][row["answer"]] += 1
        assert sum(max(count.values()) for count in answers.values()) <= 0.55 * len(rows)
    free, _ = probe(images, seed, balanced=False)
    assert max(score for readers in text_only(free, ASPECT_OF).values() for score in readers.values()) > 55
    assert probe(images, seed) == (rows, left_out)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("balanced", [True, False])
def test_what_is_asked_as_absent_is_ruled_out(source, balanced):
    images = {image.image: image for image in SOURCES[source](random.Random(source), 240)}
    rows, _ = probe(list(images.values()), 1, balanced)
    kinds = Counter()
    for row in rows:
        image, kind, asked = images[row["image"]], row["qa_type"], row["question"]
        kinds[kind.split("_")[0], row["answer"]] += 1
        if kind == "abnormality":
            assert row["answer"] == ("yes" if image.findings else "no")
        elif kind == "body_part_hallu":
            assert {image.organ, asked[len("Does this image show the ") : -1]} in (
                {"chest", "brain"},
                {"brain", "knee"},
                {"chest", "knee"},
            )
        elif kind == "modality_hallu":
            absent = asked[len("Was this image made by ") : -1]
            assert {"radiograph": "X-ray"}.get(absent, absent) != {"radiograph": "X-ray"}.get(
                image.modality, image.modality
            )
            assert not {"CT", "PET/CT"} >= {absent, image.modality}
        elif kind.startswith("entity_hallu"):
            absent = asked[len("Does this image show ") : -1]
            assert absent not in image.findings
            for pair in ({"lung nodule", "Pulmonary Nodules"}, {"Infiltration", "Pneumonia"}, {"Mass", "Nodule"}):
                assert not (absent in pair and pair & set(image.findings))
        elif kind.startswith("grounding"):
            at = int(kind.rsplit("_", 1)[1])
            where = asked.rsplit(": ", 1)[1][:-1]
            if row["answer"] == "yes":
                assert image.positions[at] == where
            elif image.touched:
                assert where not in image.touched[at]
            else:
                one, other = image.positions[at].split(), where.split()
                assert one[0] != other[0] or one[1] != other[1]
    assert all(
        kinds[kind, answer]
        for kind, answer in (("entity", "yes"), ("entity", "no"), ("abnormality", "yes"), ("abnormality", "no"))
    )


@pytest.mark.parametrize("seed", range(60))
def test_pairs_are_balanced_and_as_many_as_there_can_be(seed):
    """Against brute force on small cases: every text as often present as absent, and no larger such choice exists."""
    from itertools import product

    rng = random.Random(seed)
    texts = "abcd"[: rng.randrange(2, 5)]
    facts = []
    for number in range(rng.randrange(1, 6)):
        there = rng.choice(texts)
        absent = tuple(text for text in texts if text != there and rng.random() < 0.7)
        facts.append(Fact(f"i{number}", "", there, absent))

    def balanced(choice):
        count = Counter(fact.text for fact, other in zip(facts, choice, strict=True) if other)
        count.subtract(other for other in choice if other)
        return not any(count.values())

    most = max(
        sum(map(bool, choice)) for choice in product(*((None, *fact.absent) for fact in facts)) if balanced(choice)
    )
    pairs = balanced_pairs(facts, seed)
    assert len(pairs) == most
    assert balanced([pairs.get((fact.image, fact.key)) for fact in facts])
    assert all(pairs[fact.image, ""] in fact.absent for fact in facts if (fact.image, "") in pairs)


MAY_BE_ONE = """
lung nodule | pulmonary nodule
nodule | calcified lung nodule
Effusion | pleural effusion
tumour | mass
Pneumonia | consolidation
enlarged heart | cardiomegaly
haemorrhage | Subdural hematoma
rib fracture | fractures
PE | pulmonary embolism
GGO | ground-glass opacity
CHF | pulmonary edema
gallstones | cholelithiasis
renal calculus | kidney stones
SAH | subarachnoid hemorrhage
osteoarthritis | degenerative changes
airspace disease | consolidation
hepatomegaly | enlarged liver
lymphadenopathy | enlarged lymph nodes
multiple sclerosis | white matter lesions
meningioma | mass
adenocarcinoma | tumor
hepatocellular carcinoma | liver lesion
hydrocephalus | enlarged ventricles
ACL tear | anterior cruciate ligament rupture
disc herniation | disc protrusion
spondylolisthesis | vertebral slippage
pneumoperitoneum | free air
small bowel obstruction | dilated bowel loops
diverticulosis | diverticulitis
aortic dissection | aneurysm
cerebral infarction | hypodensity
pleural effusion | blunted costophrenic angle
Support Devices | pacemaker
osteoporosis | osteopenia
abscess | collection
neoplasm | glioblastoma
Pleural Other | Pleural Effusion
bronchiectasis | dilated bronchi
papilledema | optic disc swelling
bronchopneumonia | pneumonia
pneumothorax | collapsed lung
splenomegaly | increased size of the spleen
mediastinal shift | tracheal deviation
dextrocardia | situs inversus
osteomyelitis | bone destruction
gout | tophi
ankylosing spondylitis | sacroiliitis
Crohn disease | terminal ileitis
caries | dental cavity
lymphedema | soft tissue swelling
hemarthrosis | joint effusion
encephalomalacia | gliosis
mole | melanocytic nevus
cataract | lens opacity
pulmonary congestion | edema
rotator cuff tear | tendinopathy
foreign body | swallowed coin
"""
"""Findings of which one may be another word for the other, a kind or a sign of it."""
RULED_OUT = """
hernia | pneumothorax
aneurysm | fracture
hydrocephalus | aneurysm
gallstones | cirrhosis
emphysema | effusion
appendicitis | kidney stone
pneumothorax | cardiomegaly
meniscal tear | lung nodule
"""
ONE_TECHNIQUE = """
CT | PET/CT
MR | MRI
CXR | X-ray
mammography | radiograph
CT angiography | CTPA
DWI | T1-weighted
DX | film
bone scan | SPECT
panoramic radiograph | X-ray
colonoscopy | endoscopy
H&E | histology
angiography | CT
gradient echo | MRI
spin echo | T1
gastroscopy | endoscopy
gross specimen photograph | photo
"""
MAY_BE_SEEN = """
chest | gall bladder
uterus | cervical smear
cervix | uterus
heart | coronary sinus
elbow | radial head
hip | femoral neck
abdomen | adrenal gland
retina | optic disc
fetal brain | pelvis
chest of a newborn | skull
whole body | foot
abdominal aorta | thoracic aorta
wrist | hip
humerus | liver
elbow | skull
heart | left ventricle
larynx | esophagus
skin | foot
upper limb | hand
spine | femur
"""
NOT_SEEN = """
chest | brain
knee | chest
foot | elbow
uterus | skull
gallbladder | knee
paranasal sinuses | ankle
prostate | heart
retina | liver
"""
ELSEWHERE = """
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
MAY_BE_THERE = """
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
"""


def test_terms():
    assert same_term("Infiltrate", "Infiltration") and same_term("lung nodule", "pulmonary nodules")
    assert not same_term("Pneumothorax", "Pneumonia") and not same_term("left lung nodule", "right lung nodule")
    for line in MAY_BE_ONE.strip().splitlines():
        there, asked = line.split(" | ")
        assert not excludes_finding([there], asked) and not excludes_finding([asked], there), line
    for line in RULED_OUT.strip().splitlines():
        there, asked = line.split(" | ")
        assert excludes_finding([there], asked) and excludes_finding([asked], there), line
    assert excludes_finding(["Cardiomegaly"], "Pneumothorax") and excludes_finding([], "Pneumothorax")
    for there, asked in (
        ("chest", "abdomen"),
        ("chest", "spine"),
        ("abdomen", "spine"),
        ("chest", "heart"),
        ("brain", "neck"),
        ("chest", "flux"),
    ):
        assert not excludes_organ(there, asked) and not excludes_organ(asked, there), (there, asked)
    for line in MAY_BE_SEEN.strip().splitlines():
        there, asked = line.split(" | ")
        assert not excludes_organ(there, asked) and not excludes_organ(asked, there), line
    for line in NOT_SEEN.strip().splitlines():
        there, asked = line.split(" | ")
        assert excludes_organ(there, asked) and excludes_organ(asked, there), line
    for line in ONE_TECHNIQUE.strip().splitlines():
        there, asked = line.split(" | ")
        assert not excludes_modality(there, asked) and not excludes_modality(asked, there), line
    kinds = ("CXR", "HRCT", "T2 FLAIR", "echocardiography", "bone scintigraphy", "OCT", "dermoscopy", "histopathology")
    assert all(excludes_modality(one, other) for one in kinds for other in kinds if one != other)
    for line in ELSEWHERE.strip().splitlines():
        there, asked = line.split(" | ")
        assert excludes_position(there, asked) and excludes_position(asked, there), line
    for line in MAY_BE_THERE.strip().splitlines():
        there, asked = line.split(" | ")
        assert not excludes_position(there, asked) and not excludes_position(asked, there), line


def test_a_box_over_several_parts_has_no_position():
    assert position_of([(700, 100, 100, 100)], (1024, 1024)) == "upper right part of the image"
    assert position_of([(400, 300, 300, 400)], (1024, 1024)) == ""
    assert position_of([(0, 0, 10, 10), (600, 0, 10, 10)], (1024, 1024)) == ""
    assert sum(shares((400, 300, 300, 400), (1024, 1024)).values()) == pytest.approx(1)
    assert tuple(shares((0, 0, 1, 1), (9, 9))) == PARTS


def test_boxes_that_match_nothing_are_told_counted_and_refused(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    rows = [("image", "findings", "group")]
    boxes = [("image", "finding", "x", "y", "width", "height")]
    for number in range(12):
        Image.fromarray(rng.integers(0, 256, (90, 90), dtype=np.uint8)).save(tmp_path / "images" / f"{number}.png")
        rows.append(
            (f"{number}.png", "Infiltration;Hernia" if number % 2 else "Cardiomegaly", f"patient {number // 2}")
        )
        if number % 2:
            boxes.append((f"{number}.png", "Infiltrate", 5 if number % 4 == 1 else 60, 5, 20, 20))
    boxes.append(("99.png", "Infiltrate", 1, 1, 5, 5))
    for name, table in (("table.csv", rows), ("boxes.csv", boxes)):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(table)
    words = (
        "probe",
        tmp_path / "table.csv",
        "--images",
        tmp_path / "images",
        "--organ",
        "chest",
        "--modality",
        "X-ray",
        "--boxes",
        tmp_path / "boxes.csv",
    )
    said = curate(*words, "--out", tmp_path / "o")
    assert (
        "boxes: 6 give a position, 0 lie across" in said
        and "1 are of images that the table does not have, 0 belong" in said
    )
    asked = json.loads((tmp_path / "o" / "probmed.json").read_text())
    assert sum(row["qa_type"].startswith("grounding_gt") for row in asked) == 6
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["text_only_majority"]["overall"]["text"] <= 55
    report = build("probmed", name="o", source=tmp_path / "o", out=tmp_path / "data")
    assert "Without the image" in (tmp_path / "data" / "README.md").read_text() and any(
        "chance: 50" in line for line in report.lines
    )
    with (tmp_path / "boxes.csv").open("a", newline="") as file:
        csv.writer(file).writerow(("1.png", "Hernias of the hiatus", 1, 1, 5, 5))
        csv.writer(file).writerow(("2.png", "Pneumothorax", 1, 1, 5, 5))
    with pytest.raises(BadInput, match="2 boxes belong to no finding"):
        curate(*words, "--out", tmp_path / "p")
    assert not (tmp_path / "p").exists()
    assert "2 belong to no finding" in curate(*words, "--out", tmp_path / "p", "--drop-unmatched-boxes")
    (tmp_path / "boxes.csv").write_text("image,finding,x,y,width,height\n3.png,Infiltrate,0,80,40,40\n")
    with pytest.raises(BadInput, match="leaves its image"):
        curate(*words, "--out", tmp_path / "q")
    (tmp_path / "boxes.csv").write_text("image,finding,x,y,width,height\n3.png,Infiltrate,0,x,4,4\n")
    with pytest.raises(BadInput, match="row 1"):
        curate(*words, "--out", tmp_path / "q")


def test_where_labels_are_partial_only_what_is_named_absent_is_asked(tmp_path):
    images = [
        Probed(f"{n}.png", "chest", "CT", ("hernia",) if n % 2 else ("cardiomegaly",), ("",), absent=("cardiomegaly",) if n == 1 else ())
        for n in range(6)
    ]  # fmt: skip
    rows, _ = probe(images, 0, balanced=False)
    assert [row["image"] for row in rows if row["qa_type"].startswith("entity_hallu")] == ["1.png"]


@pytest.mark.sources
def test_no_box_of_chestxray14_is_lost_by_its_spelling(sources):
    import pandas as pd

    from curation.custom_sets.boxes import _read

    found = set(_read(sources / "chestxray14" / "BBox_List_2017.csv")["finding"])
    labels = {
        label
        for row in pd.read_csv(sources / "chestxray14" / "Data_Entry_sample.csv")["Finding Labels"]
        for label in row.split("|")
    }
    labels |= {"Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"}
    assert all(sum(same_term(label, name) for label in labels) == 1 for name in found), found
