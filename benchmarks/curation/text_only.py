"""Measure how well a reader without images scores on sets of `curate probe` and `hallucinate`.

    python benchmarks/curation/text_only.py --sources FOLDER [--medpix FOLDER] [--seeds 5]

--sources: real files of the public benchmarks, in the layout that the tests marked `sources` read.
--medpix: the folder `MedPix-2-0` of MedPix 2.0 (github.com/CHILab1/MedPix-2.0). Only labels and
texts are used. Results are percentages, the largest over the seeds.

The reader of probes knows the most frequent answer to each text in this very set
(`text_only_accuracy`). The readers of hallucination sets:

- `letter` knows the most frequent correct letter among questions with that many options.
- `gives up` always takes the option that abstains.
- `text` knows for each question text whether abstaining is mostly correct.
"""

import argparse
import csv
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from curation.custom_sets.custom_questions import CustomQuestion, FakeQuestion
from curation.custom_sets.hallucination import (
    NONE_OPTION,
    UNKNOWN_OPTION,
    ImageRelations,
    build_fake_entries,
    build_none_entries,
    build_swap_entries,
)
from curation.custom_sets.probe_table import Finding, ProbedImage, box_position, part_shares
from curation.custom_sets.probing import build_probes, text_only_accuracy
from curation.images.image_table import read_image_table
from dataset_builders.label_reading import parse_label
from dataset_builders.terms import parse_image_context

SIDE = (1024, 1024)
ORGANS = {
    "chest": "chest|lung|pulmonary|pleural|thora",
    "brain": "brain|cerebr|cranial|intracranial|head",
    "abdomen": "abdom|liver|hepatic|bowel|gastric|pancrea",
    "pelvis": "pelvi|uter|ovar|bladder|prostat",
    "spine": "spin|vertebr|lumbar|cervical",
    "heart": "cardiac|heart|ventric|aort",
}
MODALITIES = {
    "CT": r"\bct\b|computed tomog",
    "MRI": r"\bmri?\b|magnetic",
    "X-ray": "x-ray|radiograph",
    "ultrasound": "ultraso|sonogra|echocardio",
}
FINDINGS = (
    *("mass", "fracture", "effusion", "nodule", "cyst", "hemorrhage"),
    *("stenosis", "aneurysm", "thrombus", "edema", "abscess", "calcification"),
)


def probed(
    name: str, organ: str, modality: str, findings: Iterable[str] | None, findings_labelled: Iterable[str], positions: Iterable[str] = (),
    touched: Iterable[frozenset[str]] = (),
) -> ProbedImage:  # fmt: skip
    """Build an image of a probe table.

    Its absent findings are those of `findings_labelled` that it does not show. If `findings` is
    None, nothing is known about its findings.
    """
    place = parse_image_context([organ], modality)
    labels = [parse_label(text, place) for text in findings or ()]
    labelled_findings = [*zip_longest(labels, positions, touched)]
    facts = tuple(
        Finding(label, position or "", parts or frozenset())
        for label, position, parts in labelled_findings
        if not label.problem
    )
    absent = tuple(
        parse_label(text, place) for text in findings_labelled if findings is not None and text not in findings
    )
    is_normal = findings is not None and not labels
    return ProbedImage(name, organ, modality, facts, () if is_normal else absent, is_normal, place)


def nih(folder: Path) -> Iterator[ProbedImage]:
    """Yield the ChestX-ray14 films that have boxes: findings, and positions from the boxes.

    All have one organ and one modality.
    """
    boxes: dict[str, dict[str, list[tuple[float, float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    with (folder / "chestxray14" / "BBox_List_2017.csv").open(encoding="utf-8") as file:
        for name, finding, *numbers in list(csv.reader(file))[1:]:
            x, y, width, height = (float(number) for number in numbers[:4])
            boxes[name][finding].append((x, y, width, height))
    names = sorted({finding for image_boxes in boxes.values() for finding in image_boxes})
    for name, boxes_by_finding in boxes.items():
        touched = (
            frozenset(part for box in finding_boxes for part, share in part_shares(box, SIDE).items() if share)
            for finding_boxes in boxes_by_finding.values()
        )
        positions = tuple(box_position(finding_boxes, SIDE) for finding_boxes in boxes_by_finding.values())
        yield probed(name, "chest", "X-ray", tuple(boxes_by_finding), names, positions, tuple(touched))


def roco(folder: Path) -> Iterator[ProbedImage]:
    """Yield the ROCO images whose captions name exactly one organ and one modality, with findings.

    Uses the validation and test parts; the findings are those that the caption names.
    """
    for part in ("validation", "test"):
        for row in read_image_table(folder / "roco" / part / "radiology" / "captions.txt").to_dict("records"):
            text = str(row["caption"]).casefold()
            organs, kinds = (
                [name for name, words in terms.items() if re.search(words, text)] for terms in (ORGANS, MODALITIES)
            )
            if len(organs) == len(kinds) == 1:
                # "no effusion" names a finding that is absent.
                findings = tuple(name for name in FINDINGS if re.search(rf"(?<!no ){name}", text))
                yield probed(str(row["image"]), organs[0], kinds[0], findings, FINDINGS)


def medpix(folder: Path) -> Iterator[ProbedImage]:
    """Yield the CT and MR images of MedPix 2.0 with the region and the diagnosis of their case.

    Both are as given by the editors of the atlas.
    """
    topics = {case["U_id"]: case["Topic"]["Title"] for case in json.loads((folder / "Case_topic.json").read_text())}
    for entry in json.loads((folder / "Descriptions.json").read_text()):
        title = (topics.get(entry["U_id"]) or "").strip()
        findings = (title,) if title else None
        yield probed(entry["image"], entry["Location Category"], entry["Type"], findings, ())


def ward() -> Iterator[ProbedImage]:
    """Yield invented images: three organs, five modalities, positions in words."""
    rng = random.Random(0)
    organs = {
        "chest": ("lung nodule", "pleural effusion", "cardiomegaly", "hernia"),
        "brain": ("hydrocephalus", "infarct", "hemorrhage", "aneurysm"),
        "knee": ("fracture", "joint effusion", "meniscal tear"),
    }
    for number in range(600):
        organ = rng.choice(list(organs))
        few = tuple(rng.sample(organs[organ], rng.choice([0, 1, 1, 2])))
        positions = tuple(f"{rng.choice(['upper', 'lower'])} {rng.choice(['left', 'right'])}" for _ in few)
        kind = rng.choice(["CT", "MRI", "X-ray", "radiograph", "PET/CT"])
        yield probed(f"{number}.png", organ, kind, few, organs[organ], positions)


def pmc_vqa(folder: Path) -> Iterator[CustomQuestion]:
    """Yield the 1,000 questions of HALT-MedVQA's NONE file, each with a made-up correct option.

    The option "none of the above" is dropped and one of the others is taken as correct; organs are
    assigned in rotation.
    """
    for number, entry in enumerate(json.loads((folder / "halt_medvqa" / "pmc_vqa_nota1K.json").read_text())):
        texts = [entry[key].split(":", 1)[-1].strip() for key in sorted(entry) if key.startswith("choice_")]
        options = tuple(text for text in texts if text.casefold() != NONE_OPTION.casefold())
        if len(set(map(str.casefold, options))) == len(options) > 1:
            yield CustomQuestion(
                entry["img"], entry["question"].strip(), options, number % len(options), _organ(number)
            )


def mediconfusion(folder: Path) -> Iterator[CustomQuestion]:
    """Yield MediConfusion's 352 questions, two options each; organs are assigned in rotation."""
    document = json.loads((folder / "mediconfusion" / "dataset.json").read_text())
    for number, entry in enumerate(document.values()):
        for side in (1, 2):
            options = (entry["option_A"], entry["option_B"])
            right = "AB".index(entry[f"im_{side}_correct"])
            yield CustomQuestion(entry[f"im_{side}_local"], entry["question"], options, right, _organ(number))


def gmai(folder: Path) -> Iterator[CustomQuestion]:
    """Yield the 22 questions of GMAI-MMBench's public sample; organs are assigned in rotation."""
    csv.field_size_limit(10**9)
    with (folder / "gmai_mmbench" / "GMAI-MMBench_SAMPLE.tsv").open(encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file, delimiter="\t")):
            letters = [letter for letter in "ABCDE" if row[letter]]
            right = letters.index(row["answer"])
            yield CustomQuestion(row["index"], row["question"], tuple(row[at] for at in letters), right, _organ(number))


def _organ(number: int) -> str:
    """Return an organ for a question: its source names none, and the swaps need one."""
    return ("brain", "knee", "abdomen", "foot")[number % 4]


def of_probe(images: list[ProbedImage], seed: int, balanced: bool) -> tuple[int, dict[str, float]]:
    """Build a probe set; return its number of questions, and percent correct by aspect.

    The aspects are `overall` and the one with the highest score (`worst aspect`).
    """
    rows, _ = build_probes(images, seed, balanced)
    scores = text_only_accuracy(rows)
    return len(rows), {"overall": scores["overall"], "worst aspect": max(scores.values())}


def of_hallucinate(custom_questions: list[CustomQuestion], seed: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield per scenario: its name, its number of questions, and percent correct by reader.

    `chance` is the percentage that guessing gives.
    """
    rng = random.Random(seed)
    names = sorted({question.image for question in custom_questions})
    about = ImageRelations({}, {name: rng.getrandbits(64) for name in names})
    fakes = [
        FakeQuestion(f"An invented question {number}?", ("one", "two", "three", "four"))
        for number in range(len(custom_questions))
    ]
    variants: dict[str, Iterable[dict[str, Any]]] = {
        "fake": build_fake_entries(fakes, names, seed, custom_questions).values(),
        "none": build_none_entries(custom_questions, seed)[0],
        "swap": build_swap_entries(custom_questions, about, seed)[0].values(),
    }
    for scenario, entries in variants.items():
        rows = []
        for entry in entries:
            # The scenarios have different file formats: options in columns, or in one object.
            choices = [entry[key][3:] for key in sorted(entry) if key.startswith("choice_")] or list(
                entry["option"].values()
            )
            right = "ABCDEFGH".index(entry.get("answer_id") or entry["answer"])
            rows.append((entry["question"], len(choices), right, choices[right] in (NONE_OPTION, UNKNOWN_OPTION)))
        if rows:
            readers = {
                "letter": _known([count for _, count, _, _ in rows], [right for _, _, right, _ in rows]),
                "chance": 100 * sum(1 / count for _, count, _, _ in rows) / len(rows),
                "gives up": 100 * sum(out for *_, out in rows) / len(rows),
                "text": _known([question for question, *_ in rows], [out for *_, out in rows]),
            }
            yield scenario, len(rows), readers


def _known(keys: list[Any], answers: list[Any]) -> float:
    """Return the percentage correct of a reader who knows the most common answer under each key."""
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for key, answer in zip(keys, answers, strict=True):
        counts[key][answer] += 1
    return 100 * sum(max(count.values()) for count in counts.values()) / len(keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--medpix", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    sets = {"ChestX-ray14": nih(options.sources), "ROCO": roco(options.sources), "drawn ward": ward()}
    if options.medpix is not None:
        sets["MedPix"] = medpix(options.medpix)
    for name, facts in sets.items():
        images = list(facts)
        for balanced in (True, False):
            runs = [of_probe(images, seed, balanced) for seed in range(options.seeds)]
            best_by_reader = {reader: max(scores[reader] for _, scores in runs) for reader in runs[0][1]}
            summary = ", ".join(f"{reader} {score:.1f}" for reader, score in best_by_reader.items())
            way = "balanced" if balanced else "free draw"
            print(f"probe {name}, {len(images)} images, {way}: {runs[0][0]} questions; {summary}", flush=True)
    makers: dict[str, Callable[[Path], Iterator[CustomQuestion]]] = {
        "PMC-VQA": pmc_vqa,
        "MediConfusion": mediconfusion,
        "GMAI": gmai,
    }
    for name, take in makers.items():
        source_images = list(take(options.sources))
        by_scenario: dict[str, list[tuple[int, dict[str, float]]]] = defaultdict(list)
        for seed in range(options.seeds):
            for scenario, count, readers in of_hallucinate(source_images, seed):
                by_scenario[scenario].append((count, readers))
        for scenario, scenario_runs in by_scenario.items():
            summary = ", ".join(
                f"{reader} {max(scores[reader] for _, scores in scenario_runs):.1f}" for reader in scenario_runs[0][1]
            )
            print(f"hallucinate {name}, {scenario}: {scenario_runs[0][0]} questions; {summary}", flush=True)


if __name__ == "__main__":
    main()
