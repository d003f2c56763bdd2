"""Extract facts from captions with a language model: organ, modality, findings with positions, findings said to be absent (ProbMed,
section 3, which had GPT-4 analyze captions "using few-shot prompting" and prints no prompt: `CAPTION_PROMPT` is ours).

No model's reading is taken for a truth: a finding or position whose words the caption does not have is refused, and so is one that the
caption denies; what remains goes into a table with a column `reviewed`, which a person fills in. `medprobe curate probe` leaves rows out
that have not been reviewed.

See also: asking (`question_writing.py`), what is asked about such a table (`custom_sets/probing.py`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from curation.images.image_table import read_dataframe
from curation.writing.asking import AskSettings, Writer, ask_until_valid
from curation.writing.paper_prompts import fill_template, join_lines
from curation.writing.question_writing import table_rows
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file
from dataset_builders.label_reading import find_cues, parse_finding
from dataset_builders.terms import (
    find_modalities,
    find_regions,
    modalities_disjoint,
    normalize_term,
    regions_disjoint,
    singular,
)

CAPTION_PROMPT = """Below is the caption of one medical image. Write down what it says of the image, and nothing that it does not say.

Caption: "Frontal chest radiograph with a nodule in the right upper lobe. There is no pleural effusion."
{"organ": "chest", "modality": "X-ray", "normal": false, "findings": [{"finding": "nodule", "position": "right upper lobe"}],
 "absent": ["pleural effusion"]}

Caption: "Normal axial T2-weighted MRI of the brain."
{"organ": "brain", "modality": "MRI", "normal": true, "findings": [], "absent": []}

Caption: "**CAPTION**"
Answer with one JSON object of this form. Use the caption's own words for findings and positions; "position" is "" where it gives none."""
CAPTION_COLUMNS = (
    "image",
    "caption",
    "organ",
    "modality",
    "findings",
    "positions",
    "absent",
    "group",
    "license",
    "source",
    "reviewed",
)
NORMAL_FINDING = "No Finding"


def _normalize_text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


TermName = Annotated[str, BeforeValidator(_normalize_text), Field(min_length=1, pattern="^[^;|]*$")]


class NamedFinding(BaseModel):
    """A finding as a reply names it."""

    finding: TermName
    position: Annotated[str, BeforeValidator(_normalize_text), Field(pattern="^[^;|]*$")] = ""


class CaptionFacts(BaseModel):
    """The facts about an image in a reply."""

    organ: Annotated[str, BeforeValidator(_normalize_text), Field(min_length=1)]
    modality: Annotated[str, BeforeValidator(_normalize_text), Field(min_length=1)]
    normal: bool = False
    findings: list[NamedFinding] = []
    absent: list[TermName] = []


def parse_facts(reply: str, caption: str) -> dict[str, str] | None:
    """The columns organ to absent that a reply gives of a caption, or None where it says more than the caption does.

    >>> read_facts('{"organ": "chest", "modality": "CT", "normal": false, "findings": [{"finding": "mass"}]}', "Chest CT: a mass.")
    {'organ': 'chest', 'modality': 'CT', 'findings': 'mass', 'positions': '', 'absent': ''}
    """
    given = parse_json_object(reply.rpartition("</think>")[2]) or {}
    try:
        facts = CaptionFacts.model_validate({name: value for name, value in given.items() if value})
    except ValidationError:
        return None
    names, positions = ([getattr(each, part) for each in facts.findings] for part in ("finding", "position"))
    if facts.normal == bool(names):
        return None
    if facts.normal and not any(kind in ("normal", "negated") for kind, _ in find_cues(caption)):
        return None
    if modalities_disjoint(find_modalities(facts.modality), find_modalities(caption)) or regions_disjoint(
        find_regions(facts.organ), find_regions(caption)
    ):
        return None
    if not _singular_words(" ".join((*names, *positions, *facts.absent))) <= _singular_words(caption):
        return None
    if any(parse_finding(text).problem for text in (*names, *facts.absent)):
        return None
    if any(caption_stance(name, caption) not in ("stated", "") for name in names):
        return None
    if any(caption_stance(name, caption) != "denied" for name in facts.absent):
        return None
    return {
        "organ": facts.organ,
        "modality": facts.modality,
        "findings": "; ".join(names) or NORMAL_FINDING,
        "positions": "; ".join(positions) if any(positions) else "",
        "absent": "; ".join(facts.absent),
    }


def parse_json_object(reply: str) -> dict[str, Any] | None:
    """The first JSON object in a reply, or None."""
    for start in islice(re.finditer(r'\{\s*"', reply), 20):  # no reply holds more of them for a good reason
        try:
            found, _ = json.JSONDecoder().raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            continue
        return dict(found)
    return None


def _singular_words(text: str) -> set[str]:
    return set(map(singular, normalize_term(text).split()))


def caption_stance(finding: str, caption: str) -> str:
    """A caption's statement about a finding that it names in these words: `stated`, `denied`, `doubted` (also where it says several of
    these, or that it is past), or "" where it has other words for it.

    >>> stance("effusion", "No effusion."), stance("edema", "Cannot exclude edema."), stance("mass", "A mass without edema.")
    ('denied', 'doubted', 'stated')
    """
    words = r"\W+".join(map(re.escape, re.findall(r"\w+", finding)))
    said = set()
    for sentence in re.split(r"[.;](?=\s|$)|\n", caption):
        for found in re.finditer(rf"\b{words}\w*", sentence, re.IGNORECASE):
            after = re.split(r"[,(]|\b(?:with|without|and|but|no|while|in)\b", sentence[found.end() :], maxsplit=1)[0]
            said.add(_context_stance(sentence[: found.start()], after))
    return next(iter(said)) if len(said) == 1 else "doubted" if said else ""


TRAILING_NEGATION = re.compile(
    r"\bnot(?: \w+)? (?:seen|present|identified|visible|visuali[sz]ed|evident|found|noted|detected|observed|demonstrated|appreciated|shown|"
    r"apparent)\b|\b(?:absent|negative|none)\b|^no$"
)
"""Negations of the finding before it; "is not displaced" is not one."""
UNCERTAIN_CUE = re.compile(r"\b(?:can ?not|can'?t|exclu\w+|rul\w+ out|unlikely|but|except)\b", re.IGNORECASE)


def _context_stance(before: str, after: str) -> str:
    cues = [find_cues(before), find_cues(after)]
    no = [any(kind in ("negated", "normal") for kind, _ in found) for found in cues]
    denied = no[0] or bool(TRAILING_NEGATION.search(normalize_term(after)))
    others = {cue for found in cues for kind, cue in found if kind not in ("negated", "normal")} - (
        {"or"} if denied else set()
    )
    if others or UNCERTAIN_CUE.search(f"{before} {after}") or (no[1] and not denied):
        return "doubted"
    return "denied" if denied else "stated"


def extract_captions(table: pd.DataFrame, model: Writer, out: Path, asking: AskSettings) -> dict[str, int]:
    """Ask about each caption of `table` (columns of `image_table.read_table`) and write the CSV `out`; returns counts.

    Rows that `out` has already stay as they are: what a person fixed or reviewed is never asked again. Raises BadInput if `out` is
    something else. Replies are kept beside it (`.jsonl`), so that a killed run asks nothing twice.
    """
    kept = _read_finished_rows(out)
    captions = {row["image"]: join_lines(row["caption"]) for row in table.to_dict("records") if row["caption"].strip()}
    open_ones = {image: caption for image, caption in captions.items() if image not in kept}
    ids = {image: json.dumps(caption, ensure_ascii=False) for image, caption in open_ones.items()}
    prompts = {ids[image]: fill_template(CAPTION_PROMPT, caption=caption) for image, caption in open_ones.items()}

    def facts_of(key: str, entry: dict[str, Any]) -> dict[str, str] | None:
        return parse_facts(str(entry["reply"]), json.loads(key))

    with lock_folder(out.parent, f"{out.name}.captions"):
        replies = ask_until_valid(model, prompts, facts_of, asking, out.with_suffix(".jsonl"), "captions")
        read = {image: replies.good[key] for image, key in ids.items() if key in replies.good}
        about = {row["image"]: row for row in table.to_dict("records")}
        rows = [*kept.values(), *({**about[image], **facts, "reviewed": ""} for image, facts in sorted(read.items()))]
        made = pd.DataFrame(rows, columns=list(CAPTION_COLUMNS))
        replace_file(out, lambda path: made.to_csv(path, index=False))
    has_failed = Counter(replies.last[key]["status"] == "failed" for key in ids.values() if key in replies.last)
    return {
        "kept": len(kept),
        "read": len(read),
        "refused": has_failed[False],
        "no_reply": has_failed[True],
        "no_caption": len(table) - len(captions),
    }


def _read_finished_rows(out: Path) -> dict[str, dict[str, Any]]:
    if not out.is_file():
        return {}
    table = read_dataframe(out)
    if not set(CAPTION_COLUMNS) <= set(table.columns):
        raise BadInput(
            f"{out}: is not a table of this command (it lacks {', '.join(set(CAPTION_COLUMNS) - set(table.columns))}). Give another --out."
        )
    return {row["image"]: row for row in table_rows(table.fillna("").astype(str))}
