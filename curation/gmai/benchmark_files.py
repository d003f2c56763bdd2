"""Mark and write what people see (pictures, contact sheets, TSVs, dataset, report), and leave out
pictures with burned-in text.

A target is marked on a copy of the picture by a box, a translucent mask or a contour. Boxes and
contours are drawn around the target, so that they cover none of its pixels. On the contact sheets,
inverted masks, shifted boxes and wrong labels are easy to see.

Pictures are searched for burned-in text before anything is written. A picture with text is used
only after a person has decided about it (`medprobe curate texts`): `keep` uses it unchanged, `mask`
uses it with the text regions blacked out, and `drop` leaves it out.

The report consists of the page of the lexical tree, tables of counts, and the funnel. The output
contains nothing from source file names, headers or patient ids: questions are numbered, and
patients are keyed hashes in the column `group`. The TSVs are in VLMEvalKit's layout.
"""

import base64
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from PIL import Image, ImageColor
from tqdm import tqdm

from curation.gmai.candidate_cases import Candidate
from curation.gmai.label_table import LabelTable
from curation.gmai.question_templates import Branch
from curation.gmai.selecting import WrittenQuestion, select_cases
from curation.gmai.sources import (
    BOX_LEVEL,
    CONTOUR_LEVEL,
    KIND_GRANULARITIES,
    MASK_LEVEL,
    PICTURES_FOLDER,
    SHEETS_FOLDER,
    Item,
    Overlay,
    Sources,
)
from curation.images.privacy import (
    DECISIONS_FILE,
    TEXT_BOXES_FILE,
    TextBox,
    black_out,
    find_text,
    privacy_manifest,
    read_boxes,
)
from curation.readers.dataset import SourceDataset
from curation.readers.shapes import decode_segmentation
from dataset_builders.benchmarks.gmai_mmbench.reader import render_tree_page
from dataset_builders.build import MANIFEST_FILE, build, replace_folder
from dataset_builders.contents.card import ABOUT_FILE as ABOUT
from dataset_builders.contents.pseudonyms import KEYED_IDS
from dataset_builders.files import Journal, read_journal, replace_file, temporary_folder, write_json
from dataset_builders.images.lookup import encode_png


def render_png(
    private: Path,
    picture: str,
    mask: dict[str, Any] | None,
    granularity: str,
    box: Any,
    overlay: Overlay,
    text_boxes: Mapping[str, Sequence[TextBox]],
) -> bytes:
    """Render the PNG that a question shows.

    Args:
        private: private folder with the pictures.
        picture: sha256 of the stored picture.
        mask: COCO RLE of the target, or None.
        granularity: how the target is marked.
        box: (x, y, width, height) of the target in pixels, or None.
        overlay: colour, opacity and line width.
        text_boxes: picture -> regions to fill black.
    """
    with Image.open(private / PICTURES_FOLDER / f"{picture}.png") as image:
        pixels = np.asarray(black_out(image.convert("RGB"), text_boxes.get(picture, ())))
    target_mask = None if mask is None else decode_segmentation(mask, tuple(mask["size"]))
    return encode_png(Image.fromarray(burn_overlay(pixels, granularity, box, target_mask, overlay)))


def burn_overlay(
    pixels: np.ndarray, granularity: str, box: Any, mask: np.ndarray | None, overlay: Overlay
) -> np.ndarray:
    """Mark a target on a copy of a picture.

    A box is framed from outside (where it touches the picture's edge, the frame is on the edge), a
    mask is tinted, and contours surround each piece and hole of the mask.

    Args:
        pixels: (height, width, 3) uint8.
        granularity: how the target is marked.
        box: (x, y, width, height) in pixels, or None.
        mask: (height, width) bool, or None.
        overlay: colour, opacity and line width.

    Returns:
        The marked copy; the picture itself if the granularity is the image level.
    """
    opacity = 1.0

    if granularity == BOX_LEVEL and box is not None:
        painted_px = box_outline(box, (pixels.shape[0], pixels.shape[1]), overlay.width)
    elif granularity == CONTOUR_LEVEL and mask is not None:
        painted_px = mask_outline(mask, overlay.width)
    elif granularity == MASK_LEVEL and mask is not None:
        painted_px, opacity = mask, overlay.opacity
    else:
        return pixels

    # Only the marking's pixels change; all others stay identical to the original.
    colour = np.array(ImageColor.getrgb(overlay.color)[:3], float)
    painted = pixels.copy()
    painted[painted_px] = (painted[painted_px] * (1 - opacity) + colour * opacity).round().astype(np.uint8)
    return painted


def box_outline(box: Any, shape: tuple[int, int], width: int) -> np.ndarray:
    """Return the frame of a box as a (height, width) bool array.

    The frame consists of the pixels outside the box within `width` of it. Where the box touches the
    picture's edge, the frame is the picture's outermost row or column.
    """
    # Round outwards, so that the frame never covers a pixel of the target.
    left_px, top_px = int(np.floor(box[0])), int(np.floor(box[1]))
    right_px, bottom_px = int(np.ceil(box[0] + box[2])), int(np.ceil(box[1] + box[3]))

    inner, outer = np.zeros(shape, bool), np.zeros(shape, bool)

    # Leave at least one pixel at the picture's edge, so that a box that touches the edge has a
    # visible frame.
    inner[max(top_px, 1) : min(bottom_px, shape[0] - 1), max(left_px, 1) : min(right_px, shape[1] - 1)] = True
    outer[
        max(top_px - width, 0) : min(bottom_px + width, shape[0]),
        max(left_px - width, 0) : min(right_px + width, shape[1]),
    ] = True
    return outer & ~inner


def mask_outline(mask: np.ndarray, width: int) -> np.ndarray:
    """Return the pixels outside a mask but within `width` steps of it, (height, width) bool."""
    from scipy.ndimage import binary_dilation

    grown: np.ndarray = binary_dilation(mask, iterations=width)
    return grown & ~mask


# Contact sheets

PICTURES_PER_SHEET = 9
SHEET_HTML = """<!doctype html><meta charset="utf-8"><title>{0}</title>
<style>body {{ font: 15px system-ui; display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: 1rem }}
h1 {{ grid-column: 1 / -1; margin: 0; font-size: 1.2rem }} figure {{ margin: 0 }} img {{ width: 100%; background: #000 }}</style>
<h1>{0}: does each mark match its label?</h1>
"""
FIGURE_HTML = '<figure><img alt="" src="data:image/png;base64,{}"><figcaption>{} ({})</figcaption></figure>\n'


def write_contact_sheets(items: list[Item], private: Path, sources: Sources) -> None:
    """Write a contact sheet per dataset, `private/sheets/DATASET.html`.

    Each shows as many different labels as possible, and the same pictures in every run. The sheets
    are private, since these pictures have not been reviewed yet.
    """
    shutil.rmtree(private / SHEETS_FOLDER, ignore_errors=True)
    (private / SHEETS_FOLDER).mkdir()
    for dataset in sources.datasets:
        # Sorting by keyed ids makes the order independent of file names.
        by_label: dict[str, list[Item]] = defaultdict(list)
        for item in sorted(items, key=lambda item: item.item):
            if item.dataset == dataset.name:
                by_label[item.label].append(item)

        # Each label's first item, then each label's second, and so on.
        rounds = [item for turn in zip_longest(*by_label.values()) for item in turn if item is not None]
        html = SHEET_HTML.format(escape(dataset.name))
        for item in rounds[:PICTURES_PER_SHEET]:
            kind = KIND_GRANULARITIES[item.kind][-1]
            png = render_png(private, item.picture, item.mask, kind, item.box, sources.overlay, {})
            html += FIGURE_HTML.format(base64.b64encode(png).decode("ascii"), escape(item.label), kind)
        replace_file(private / SHEETS_FOLDER / f"{dataset.name}.html", html.encode())


# Burned-in text


def read_text_decisions(private: Path) -> dict[str, str]:
    """Return picture -> decision (mask, keep or drop); the last decision about a picture counts."""
    return {entry["item"]: entry["value"] for entry in read_journal(private / DECISIONS_FILE)}


def undecided_pictures(private: Path) -> list[str]:
    """Return the pictures that may contain text and await a decision."""
    decided = read_text_decisions(private)
    return sorted(name for name, boxes in read_boxes(private).items() if boxes and name not in decided)


def blacked_out_boxes(private: Path) -> dict[str, list[TextBox]]:
    """Return picture -> regions to fill black."""
    decided = read_text_decisions(private)
    return {name: boxes for name, boxes in read_boxes(private).items() if decided.get(name) == "mask"}


def exclude_burned_in_text(
    cases: list[Candidate],
    private: Path,
    sources: Sources,
    search: bool = True,
) -> tuple[list[Candidate], Counter[str], dict[str, Any] | None]:
    """Choose cases (`select_cases`) without burned-in text that awaits a decision.

    Only the pictures of chosen cases are searched, each of them once. Datasets written by `medprobe
    curate deidentify` are not searched again, since that command has searched them.

    Args:
        cases: candidate cases.
        private: private folder of the work folder.
        sources: sources.yaml.
        search: False skips the search.

    Returns:
        Chosen cases, how many each limit removed, and counts of the search (None if skipped).
    """
    if not search:
        return *select_cases(cases, sources), None
    searched_datasets = {dataset.name for dataset in sources.datasets if _was_searched(dataset)}
    boxes, decided = read_boxes(private), read_text_decisions(private)
    # Excluding a picture makes `select_cases` choose other cases, whose pictures may not have been
    # searched: repeat until all have been.
    while True:
        withheld = {name for name, text_boxes in boxes.items() if text_boxes and decided.get(name, "drop") == "drop"}
        eligible = [case for case in cases if withheld.isdisjoint(name for name, _ in case.item.pictures)]
        chosen, limit_counts = select_cases(eligible, sources)
        to_search = {
            name for case in chosen if case.item.dataset not in searched_datasets for name, _ in case.item.pictures
        }
        unsearched = sorted(to_search - boxes.keys())

        if not unsearched:
            break
        # A journal keeps the results of an interrupted search.
        with Journal(private / TEXT_BOXES_FILE) as journal:
            for name in tqdm(unsearched, desc="searching for burned-in text", unit="picture", disable=None):
                with Image.open(private / PICTURES_FOLDER / f"{name}.png") as image:
                    boxes[name] = find_text(image)
                journal.append({"image": name, "boxes": [list(box) for box in boxes[name]]})

    with_text = {name for name in boxes if boxes[name]}
    limit_counts["burned-in text: undecided or dropped"] = len(cases) - len(eligible)
    counts = {
        "searched": len(boxes),
        "with_text": len(with_text),
        "undecided": len(with_text - decided.keys()),
        "decisions": dict(Counter(decided[name] for name in sorted(with_text & decided.keys()))),
        "searched_by_deidentify": sorted(searched_datasets),
    }
    return chosen, limit_counts, counts


def _was_searched(dataset: SourceDataset) -> bool:
    """Return True if `deidentify` searched a dataset's pictures for text; it skips volumes."""
    report = privacy_manifest(dataset.path).get("deidentification", {})

    # Volumes are not searched by `deidentify`, so their slices are searched here.
    return dataset.reader != "nifti" and bool(report.get("text", {}).get("searched"))


# TSVs, dataset and report

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
