"""Write the output of the pipeline: TSVs in VLMEvalKit's layout, the lexical tree's page, tables, funnel, and the dataset repository.

Nothing of a source's file names, headers or patient ids is in them: questions are numbered, patients are keyed hashes in `group`.
"""

from __future__ import annotations

import base64
import csv
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tqdm import tqdm

from curation.gmai import FORMAT
from curation.gmai.items import PICTURES
from curation.gmai.labels import LabelTable
from curation.gmai.overlay import blackened, shown_png
from curation.gmai.questions import Branch
from curation.gmai.selecting import Written
from curation.gmai.sources import Sources
from curation.readers.dataset import SourceDataset
from dataset_builders.build import MANIFEST, BuildReport, build, replacing
from dataset_builders.contents.about import FILE as ABOUT
from dataset_builders.contents.pseudonyms import KEYED
from dataset_builders.files import temporary_folder, write_json
from dataset_builders.lexical_tree import Row, tree_page

COLUMNS = (
    "index", "image", "image_path", "question", "A", "B", "C", "D", "E", "answer", "category", "l2-category", "split",
    "clinical vqa task", "department", "perceptual granularity", "modality", "question_type", "group", "license", "source",
)  # fmt: skip
BRANCH_COLUMNS = ["modality", "task", "granularity", "questions", "correct", "chance", "p", "flagged"]
TREE = "LexicalTree.html"


def write_tsvs(
    folder: Path,
    keys: Path,
    name: str,
    written: list[Written],
    private: Path,
    sources: Sources,
    table: LabelTable,
    checked: Mapping[str, Any],
) -> None:
    """Into `folder`: `<name>_VAL.tsv` with answers, `<name>_TEST.tsv` without, each with a `_MULTI` of its own for multiple choice (a
    reader of single letters fails on those), and the tree. Into `keys`: the test's answers."""
    datasets = {dataset.name: dataset for dataset in sources.datasets}
    black = blackened(private)
    files: dict[str, list[Written]] = defaultdict(list)
    for each in sorted(written, key=lambda each: each.index):
        is_multiple = "_MULTI" if each.case.is_multiple else ""
        files[f"{name}_{'TEST' if each.split == 'test' else 'VAL'}{is_multiple}.tsv"].append(each)
    several = any(each.case.item.more for each in written)
    columns = [name for name in COLUMNS if several or name != "image_path"]
    with tqdm(total=len(written), desc="writing questions", unit="question", disable=None) as bar:
        for file, own in files.items():
            with (folder / file).open("w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, columns, extrasaction="ignore", delimiter="\t", lineterminator="\n")
                writer.writeheader()
                for each in own:
                    shown = (private / PICTURES, each.case.granularity, each.case.item.box, sources.overlay)
                    pictures = each.case.item.pictures
                    pngs = [shown_png(picture, mask, *shown, black.get(picture, ())) for picture, mask in pictures]
                    writer.writerow(_row(each, pngs, datasets[each.case.item.dataset]))
                    bar.update()
    manifest: dict[str, Any] = {"name": name, "format": FORMAT, "made_by": "medprobe curate gmai", "ids": KEYED}
    mesh = {label: table.labels[label].mesh for each in written for label in each.case.answers if label in table.labels}
    known = "; ".join(f"{label} {number}" for label, number in sorted(mesh.items()) if number)
    manifest |= checked
    manifest["notes"] = [*checked["notes"], f"MeSH ids of the labels: {known or 'none given'}."]
    write_json(folder / MANIFEST, manifest)
    (folder / TREE).write_text(tree_page(tree_rows(written), "Lexical tree"), encoding="utf-8")
    if any(each.split == "test" for each in written):
        tests = (each for each in sorted(written, key=lambda each: each.index) if each.split == "test")
        lines = ["index\tanswer\tcategory", *(f"{each.index}\t{each.letters}\t{each.case.answer}" for each in tests)]
        (keys / f"{name}_TEST_answers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(each: Written, pngs: list[bytes], dataset: SourceDataset) -> dict[str, Any]:
    case, is_test = each.case, each.split == "test"
    return {
        "index": each.index,
        "image": _listed([base64.b64encode(png).decode("ascii") for png in pngs]),
        "image_path": _listed([f"{each.index}_{number}.png" for number in range(len(pngs))]),
        "question": each.question,
        **dict(zip("ABCDE", each.choice.options, strict=False)),
        "answer": "" if is_test else each.letters,
        "category": "" if is_test else case.answer,
        "l2-category": case.task,
        "split": "TEST" if is_test else "VAL",
        "clinical vqa task": case.task,
        "department": case.department,
        "perceptual granularity": case.granularity,
        "modality": case.modality,
        "question_type": "multiple" if case.is_multiple else "single",
        "group": case.item.patient,
        "license": dataset.license,
        "source": dataset.name,
    }


def _listed(texts: list[str]) -> str:
    """One text as it is, several as VLMEvalKit reads a list of them."""
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def tree_rows(written: list[Written]) -> list[Row]:
    """(subject, category, modality, label) of every question, sorted, each once."""
    rows = set()
    for each in written:
        for subject in ("task", "department", "granularity"):
            rows |= {(subject, getattr(each.case, subject), each.case.modality, name) for name in each.case.answers}
    return sorted(rows)


def write_report(
    folder: Path, written: list[Written], table: LabelTable, branches: list[Branch], funnel: dict[str, Any]
) -> None:
    """Tables 5 to 7, cases per label with MeSH ids, what is right without the images per branch, and the funnel. A multiple-choice question
    counts once per right option."""
    rows = [
        {"task": e.case.task, "department": e.case.department, "granularity": e.case.granularity, "modality": e.case.modality,
         "label": name, "kind": "multiple" if e.case.is_multiple else "single", "question": e.index}
        for e in written for name in e.case.answers
    ]  # fmt: skip
    cases = pd.DataFrame(rows)
    for file, subject in (("tasks", "task"), ("departments", "department"), ("granularities", "granularity")):
        cases.groupby([subject, "kind"]).agg(
            modalities=("modality", "nunique"),
            labels=("label", "nunique"),
            cases=("label", "size"),
            questions=("question", "nunique"),
        ).to_csv(folder / f"{file}.csv")
    labels = cases.groupby(["task", "department", "granularity", "modality", "label"], as_index=False).agg(
        cases=("kind", "size")
    )
    labels["mesh"] = [table.labels[name].mesh if name in table.labels else "" for name in labels["label"]]
    labels.to_csv(folder / "labels.csv", index=False)
    pd.DataFrame([each.row() for each in branches], columns=BRANCH_COLUMNS).to_csv(
        folder / "blind_majority.csv", index=False
    )
    write_json(folder / "funnel.json", funnel)


def write_outputs(
    out: Path, name: str, written: list[Written], private: Path, sources: Sources, table: LabelTable, about: Mapping[str, str],
    checked: Mapping[str, Any], report: Callable[[Path], None],
) -> BuildReport:  # fmt: skip
    """Write `tsv/`, `report/` and the dataset repository `dataset/` (test answers: `dataset-answers/`, private), each whole or not at all.
    about: what is said of the people in it; checked: `notes` for the card and `validated`, of how far the set was checked.

    The repository is built by the builder of gmai-mmbench from the same files, so that what it refuses never replaces a good set.
    """
    with temporary_folder(out, ".source.") as source, replacing(out / "tsv") as tsv, replacing(out / "report") as page:
        keys = source / "keys"
        keys.mkdir()
        write_tsvs(tsv, keys, name, written, private, sources, table, checked)
        if about:
            (tsv / ABOUT).write_text(yaml.safe_dump(dict(about), allow_unicode=True), encoding="utf-8")
        report(page)
        for file in [*tsv.iterdir(), *keys.iterdir()]:
            shutil.copyfile(file, source / file.name)
        built = build(FORMAT, name=name, source=source, out=out / "dataset")
        for file in keys.iterdir():
            (private / file.name).unlink(missing_ok=True)
            shutil.copyfile(file, private / file.name)
    return built
