"""Write the pipeline's output: TSVs, the built dataset, and its report.

The report consists of the page of the lexical tree, tables of counts, and the funnel. The output
contains nothing from source file names, headers or patient ids: questions are numbered, and
patients are keyed hashes in the column `group`. The TSVs are in VLMEvalKit's layout.
"""

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tqdm import tqdm

from curation.gmai.label_table import LabelTable
from curation.gmai.overlay import blacked_out_boxes, render_png
from curation.gmai.question_templates import Branch
from curation.gmai.selecting import WrittenQuestion
from curation.gmai.sources import Sources
from dataset_builders.benchmarks.gmai_mmbench.reader import render_tree_page
from dataset_builders.build import MANIFEST_FILE, build, replace_folder
from dataset_builders.contents.card import ABOUT_FILE as ABOUT
from dataset_builders.contents.pseudonyms import KEYED_IDS
from dataset_builders.files import temporary_folder, write_json

VLMEVALKIT_COLUMNS = (
    "index", "image", "image_path", "question", "A", "B", "C", "D", "E", "answer", "category",
    "l2-category", "split", "clinical vqa task", "department", "perceptual granularity", "modality",
    "question_type", "group", "license", "source",
)  # fmt: skip
TREE_FILE = "LexicalTree.html"
ANSWERS_SUFFIX = "_TEST_answers.tsv"
FACET_TABLES = {"task": "tasks", "department": "departments", "granularity": "granularities"}
"""Facet of the lexical tree -> name of the file with its counts (the paper's tables 5 to 7)."""


def _question_row(question: WrittenQuestion, licenses: Mapping[str, str]) -> dict[str, Any]:
    """Return a question in VLMEvalKit's columns, without its images.

    Questions of the test split have no answers.
    """
    case, is_test = question.case, question.split == "test"
    return {
        "index": question.index,
        "question": question.question,
        **dict(zip("ABCDE", question.choice.options, strict=False)),
        "answer": "" if is_test else question.letters,
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
    """Return a single text unchanged, and several as a JSON list, which VLMEvalKit parses."""
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def _write_tsvs(
    folder: Path,
    answers_folder: Path,
    name: str,
    written: list[WrittenQuestion],
    private: Path,
    sources: Sources,
) -> None:
    """Write the TSVs of both splits, and the test answers.

    `<name>_VAL.tsv` has answers, `<name>_TEST.tsv` has none. Questions with several correct options
    go to `_MULTI` files, since parsers of single letters fail on them.

    Args:
        folder: folder of the TSVs.
        answers_folder: folder of the test answers.
        name: name of the benchmark.
        written: all questions.
        private: private folder with the pictures.
        sources: sources.yaml.
    """
    licenses = {dataset.name: dataset.license for dataset in sources.datasets}
    text_boxes = blacked_out_boxes(private)
    has_slices = any(question.case.item.further_slices for question in written)

    # `image_path` is only needed if a question has several images.
    columns = [column for column in VLMEVALKIT_COLUMNS if has_slices or column != "image_path"]
    for question in tqdm(written, desc="writing questions", unit="question", disable=None):
        case, row = question.case, _question_row(question, licenses)
        pictures = [
            render_png(private, picture, mask, case.granularity, case.item.box, sources.overlay, text_boxes)
            for picture, mask in case.item.pictures
        ]
        row["image"] = _join_texts([base64.b64encode(png).decode("ascii") for png in pictures])
        row["image_path"] = _join_texts([f"{question.index}_{number}.png" for number in range(len(pictures))])
        _append_row(folder / f"{name}_{row['split']}{'_MULTI' * case.is_multiple}.tsv", columns, row)
        if question.split == "test":
            answer_row = {"index": question.index, "answer": question.letters, "category": case.answer}
            _append_row(answers_folder / f"{name}{ANSWERS_SUFFIX}", list(answer_row), answer_row)


def _append_row(file: Path, columns: list[str], row: dict[str, Any]) -> None:
    """Append a row to a TSV; a new file starts with the header."""
    # Rows are appended one at a time, since the base64 pictures of a large set do not fit into
    # memory.
    table = pd.DataFrame([row], columns=columns)
    table.to_csv(file, sep="\t", index=False, mode="a", header=not file.exists(), lineterminator="\n")


def _write_report(
    folder: Path,
    cases: pd.DataFrame,
    table: LabelTable,
    branches: list[Branch],
    funnel: dict[str, Any],
) -> None:
    """Write the counts per facet and per label, the blind baseline per branch, and the funnel.

    A multiple-choice question counts once per correct option.
    """
    for subject, table_name in FACET_TABLES.items():
        cases.groupby([subject, "kind"]).agg(
            modalities=("modality", "nunique"),
            labels=("label", "nunique"),
            cases=("label", "size"),
            questions=("question", "nunique"),
        ).to_csv(folder / f"{table_name}.csv")

    labels = cases.groupby([*FACET_TABLES, "modality", "label"], as_index=False).agg(cases=("kind", "size"))
    labels["mesh"] = [table.label(name).mesh for name in labels["label"]]
    labels.to_csv(folder / "labels.csv", index=False)
    pd.DataFrame([branch.row() for branch in branches]).to_csv(folder / "blind_majority.csv", index=False)
    write_json(folder / "funnel.json", funnel)


def write_outputs(
    out: Path,
    written: list[WrittenQuestion],
    private: Path,
    sources: Sources,
    table: LabelTable,
    people_statements: Mapping[str, str],
    branches: list[Branch],
    funnel: dict[str, Any],
) -> None:
    """Write `tsv/`, `report/` and the built dataset `dataset/`, each atomically.

    Test answers go to `dataset-answers/` and to `private`. The builder of gmai-mmbench builds the
    dataset from the same files; if it refuses them, the earlier output is kept.

    Args:
        out: work folder; its name is the benchmark's.
        written: all questions.
        private: private folder with the pictures.
        sources: sources.yaml.
        table: canonical labels.
        people_statements: content of about.yaml (approval and so on).
        branches: blind baseline per branch.
        funnel: counts of every stage.
    """
    set_name = out.name
    rows = [
        {
            "task": question.case.task,
            "department": question.case.department,
            "granularity": question.case.granularity,
            "modality": question.case.modality,
            "label": label,
            "kind": "multiple" if question.case.is_multiple else "single",
            "question": question.index,
        }
        for question in written
        for label in question.case.answers
    ]
    cases = pd.DataFrame(rows)

    # Everything is built in temporary folders, which replace the old output only if the build
    # succeeds.
    with (
        temporary_folder(out, ".source.") as source,
        replace_folder(out / "tsv") as tsv,
        replace_folder(out / "report") as report,
    ):
        # Test answers are kept out of `tsv`, which is published.
        in_order = sorted(written, key=lambda question: question.index)
        _write_tsvs(tsv, source, set_name, in_order, private, sources)

        tree = {(subject, *row) for subject in FACET_TABLES for row in cases[[subject, "modality", "label"]].to_numpy()}
        (tsv / TREE_FILE).write_text(render_tree_page(sorted(tree), "Lexical tree"), encoding="utf-8")
        mesh = "; ".join(
            f"{label} {table.label(label).mesh}" for label in sorted(set(cases["label"])) if table.label(label).mesh
        )
        manifest = {
            "name": set_name,
            "format": "gmai-mmbench",
            "made_by": "medprobe curate gmai",
            "ids": KEYED_IDS,
            "notes": [*_validation_notes(funnel, branches), f"MeSH ids of the labels: {mesh or 'none given'}."],
            "validated": bool(funnel["validation"]["validated_questions"]),
        }
        write_json(tsv / MANIFEST_FILE, manifest)
        if people_statements:
            (tsv / ABOUT).write_text(yaml.safe_dump(dict(people_statements), allow_unicode=True), encoding="utf-8")
        _write_report(report, cases, table, branches, funnel)

        shutil.copytree(tsv, source, dirs_exist_ok=True)
        build("gmai-mmbench", name=set_name, source=source, out=out / "dataset")
        for file in source.glob(f"*{ANSWERS_SUFFIX}"):
            shutil.copyfile(file, private / file.name)


def _validation_notes(funnel: dict[str, Any], branches: list[Branch]) -> list[str]:
    """Return sentences for the dataset card on how far the set was validated."""
    validation, text_counts = funnel["validation"], funnel["burned_in_text"]
    validation_note = "Validation: no person has checked these questions."
    if validation["validated_questions"]:
        validation_note = (
            f"Validation: {validation['validated_questions']} of {funnel['questions']} questions "
            f"by {validation['reviewers']} people "
            f"({sum(validation['dropped'].values())} others left out)."
        )
    text_note = "Burned-in text: not searched."
    if text_counts is not None:
        decisions = ", ".join(f"{count} {decision}" for decision, count in text_counts["decisions"].items()) or "none"
        text_note = (
            f"Burned-in text: searched in {text_counts['searched']} pictures; "
            f"{text_counts['with_text']} may contain some. "
            f"Decided by a person: {decisions}; the other {text_counts['undecided']} are not used."
        )
    return [
        validation_note,
        text_note,
        f"Text alone: {branches[0]}, answering with the option that is most often right elsewhere"
        f"{'; the set was built nonetheless' if any(branch.flagged for branch in branches) else ''}.",
    ]
