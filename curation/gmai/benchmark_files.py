"""Write the output of the pipeline: TSVs in VLMEvalKit's layout, the lexical tree's page, tables, funnel, and the dataset repository.

Nothing of a source's file names, headers or patient ids is in them: questions are numbered, patients are keyed hashes in `group`.
"""

from __future__ import annotations

import base64
import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tqdm import tqdm

from curation.gmai import FORMAT
from curation.gmai.items import PICTURES_FOLDER
from curation.gmai.label_table import LabelTable
from curation.gmai.overlay import blacked_out_boxes, render_png
from curation.gmai.question_templates import Branch
from curation.gmai.selecting import WrittenQuestion
from curation.gmai.sources import Sources
from dataset_builders.build import MANIFEST_FILE, build, replace_folder
from dataset_builders.contents.about import ABOUT_FILE as ABOUT
from dataset_builders.contents.pseudonyms import KEYED_IDS
from dataset_builders.files import temporary_folder, write_json
from dataset_builders.lexical_tree import render_tree_page

TSV_COLUMNS = (
    "index", "image", "image_path", "question", "A", "B", "C", "D", "E", "answer", "category", "l2-category", "split",
    "clinical vqa task", "department", "perceptual granularity", "modality", "question_type", "group", "license", "source",
)  # fmt: skip
TREE_FILE = "LexicalTree.html"
FACET_TABLES = {"task": "tasks", "department": "departments", "granularity": "granularities"}
"""Facet of the tree and of tables 5 to 7 -> the table's file."""


def _question_row(each: WrittenQuestion, licenses: Mapping[str, str]) -> dict[str, Any]:
    """A question in VLMEvalKit's columns, without its images; the answers of the test are in a file of their own."""
    case, is_test = each.case, each.split == "test"
    return {
        "index": each.index,
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
        "license": licenses[case.item.dataset],
        "source": case.item.dataset,
    }


def _join_texts(texts: list[str]) -> str:
    """One text as it is, several as VLMEvalKit reads a list of them."""
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def _write_tsvs(
    folder: Path, keys: Path, name: str, written: list[WrittenQuestion], private: Path, sources: Sources
) -> None:
    """Into `folder`: `<name>_VAL.tsv` with answers, `<name>_TEST.tsv` without, each with a `_MULTI` of its own for multiple choice (a
    reader of single letters fails on those). Into `keys`: the test's answers."""
    licenses = {dataset.name: dataset.license for dataset in sources.datasets}
    black = blacked_out_boxes(private)
    several = any(each.case.item.more for each in written)
    columns = [column for column in TSV_COLUMNS if several or column != "image_path"]
    for each in tqdm(written, desc="writing questions", unit="question", disable=None):
        row = _question_row(each, licenses)
        shown = (private / PICTURES_FOLDER, each.case.granularity, each.case.item.box, sources.overlay)
        pngs = [render_png(picture, mask, *shown, black.get(picture, ())) for picture, mask in each.case.item.pictures]
        row["image"] = _join_texts([base64.b64encode(png).decode("ascii") for png in pngs])
        row["image_path"] = _join_texts([f"{each.index}_{number}.png" for number in range(len(pngs))])
        _append_row(folder / f"{name}_{row['split']}{'_MULTI' * each.case.is_multiple}.tsv", columns, row)
        if each.split == "test":
            key = {"index": each.index, "answer": each.letters, "category": each.case.answer}
            _append_row(keys / f"{name}_TEST_answers.tsv", list(key), key)


def _append_row(file: Path, columns: list[str], row: dict[str, Any]) -> None:
    is_new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore", delimiter="\t", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def _write_report(
    folder: Path, cases: pd.DataFrame, table: LabelTable, branches: list[Branch], funnel: dict[str, Any]
) -> None:
    """Tables 5 to 7, cases per label with MeSH ids, what is right without the images per branch, and the funnel. A multiple-choice question
    counts once per right option."""
    for subject, file in FACET_TABLES.items():
        cases.groupby([subject, "kind"]).agg(
            modalities=("modality", "nunique"),
            labels=("label", "nunique"),
            cases=("label", "size"),
            questions=("question", "nunique"),
        ).to_csv(folder / f"{file}.csv")
    labels = cases.groupby([*FACET_TABLES, "modality", "label"], as_index=False).agg(cases=("kind", "size"))
    labels["mesh"] = [table.label(name).mesh for name in labels["label"]]
    labels.to_csv(folder / "labels.csv", index=False)
    pd.DataFrame([each.row() for each in branches]).to_csv(folder / "blind_majority.csv", index=False)
    write_json(folder / "funnel.json", funnel)


def write_outputs(
    out: Path, written: list[WrittenQuestion], private: Path, sources: Sources, table: LabelTable, about: Mapping[str, str],
    branches: list[Branch], funnel: dict[str, Any],
) -> None:  # fmt: skip
    """Write `tsv/`, `report/` and the dataset repository `dataset/` (test answers: `dataset-answers/`, private), each whole or not at all.
    about: what is said of the people in it.

    The repository is built by the builder of gmai-mmbench from the same files, so that what it refuses never replaces a good set.
    """
    name = out.name
    rows = [
        {"task": e.case.task, "department": e.case.department, "granularity": e.case.granularity, "modality": e.case.modality,
         "label": label, "kind": "multiple" if e.case.is_multiple else "single", "question": e.index}
        for e in written for label in e.case.answers
    ]  # fmt: skip
    cases = pd.DataFrame(rows)
    with (
        temporary_folder(out, ".source.") as source,
        replace_folder(out / "tsv") as tsv,
        replace_folder(out / "report") as page,
    ):
        keys = source / "keys"
        keys.mkdir()
        _write_tsvs(tsv, keys, name, sorted(written, key=lambda each: each.index), private, sources)
        tree = {(subject, *row) for subject in FACET_TABLES for row in cases[[subject, "modality", "label"]].to_numpy()}
        (tsv / TREE_FILE).write_text(render_tree_page(sorted(tree), "Lexical tree"), encoding="utf-8")
        checked = _validation_fields(funnel, branches)
        mesh = "; ".join(
            f"{label} {table.label(label).mesh}" for label in sorted(set(cases["label"])) if table.label(label).mesh
        )
        checked["notes"].append(f"MeSH ids of the labels: {mesh or 'none given'}.")
        manifest = {"name": name, "format": FORMAT, "made_by": "medprobe curate gmai", "ids": KEYED_IDS}
        write_json(tsv / MANIFEST_FILE, manifest | checked)
        if about:
            (tsv / ABOUT).write_text(yaml.safe_dump(dict(about), allow_unicode=True), encoding="utf-8")
        _write_report(page, cases, table, branches, funnel)
        for file in [*tsv.iterdir(), *keys.iterdir()]:
            shutil.copyfile(file, source / file.name)
        build(FORMAT, name=name, source=source, out=out / "dataset")
        for file in keys.iterdir():
            (private / file.name).unlink(missing_ok=True)
            shutil.copyfile(file, private / file.name)


def _validation_fields(funnel: dict[str, Any], branches: list[Branch]) -> dict[str, Any]:
    """Statements of the dataset's card and manifest on how far the set was checked."""
    validation, text = funnel["validation"], funnel["burned_in_text"]
    notes = [
        f"Validation: {validation['validated_questions']} of {funnel['questions']} questions by {validation['reviewers']} people "
        f"({sum(validation['dropped'].values())} others left out)."
        if validation["validated_questions"]
        else "Validation: no person has checked these questions."
    ]
    if text is None:
        notes.append("Burned-in text: not searched.")
    else:
        decided = ", ".join(f"{count} {what}" for what, count in text["decisions"].items()) or "none"
        notes.append(
            f"Burned-in text: searched in {text['searched']} pictures; {text['with_text']} may hold some. Decided by a person: {decided}; "
            f"the other {text['undecided']} are in no question."
        )
    notes.append(
        f"Text alone: {branches[0]}, answering with the option that is most often right elsewhere"
        f"{'; the set was built nonetheless' if any(each.flagged for each in branches) else ''}."
    )
    return {"notes": notes, "validated": bool(validation["validated_questions"])}
