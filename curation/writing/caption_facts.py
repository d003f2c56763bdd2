"""Extract facts from captions with a language model (ProbMed, section 3).

The facts are organ, modality, findings with positions, and findings declared absent. The authors
had GPT-4 analyze captions "using few-shot prompting" but did not publish their prompt;
`CAPTION_PROMPT` is ours.

Model output is not ground truth: a finding or position is rejected if its words are not in the
caption or if the caption denies it. The other facts are written to a table with a column
`reviewed`, which a person fills in; `medprobe curate probe` refuses a table with unreviewed rows.

See also: requests to the model (`asking.py`), the questions made from such a table
(`custom_sets/probing.py`).
"""

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from curation.images.image_table import read_dataframe
from curation.writing.asking import AskSettings, Writer, ask_until_valid, fill_template, join_lines
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
"""A name that contains no separator of the table's cells (; or |)."""


class NamedFinding(BaseModel):
    """A finding in a reply."""

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
    """Parse a reply about a caption, and check it against the caption.

    Args:
        reply: the model's reply; text before a last </think> is ignored.
        caption: the caption.

    Returns:
        Values of the columns organ, modality, findings, positions and absent; None if the reply is
        not valid or states more than the caption does.

    >>> reply = '{"organ": "chest", "modality": "CT", "findings": [{"finding": "mass"}]}'
    >>> parse_facts(reply, "Chest CT: a mass.")
    {'organ': 'chest', 'modality': 'CT', 'findings': 'mass', 'positions': '', 'absent': ''}
    """
    raw_facts = parse_json_object(reply.rpartition("</think>")[2]) or {}
    try:
        # Fields that are null or empty count as missing, so that their defaults apply.
        facts = CaptionFacts.model_validate(
            {name: value for name, value in raw_facts.items() if value},
        )
    except ValidationError:
        return None
    names, positions = ([getattr(finding, part) for finding in facts.findings] for part in ("finding", "position"))
    says_normal = any(kind in ("normal", "negated") for kind, _ in find_cues(caption))
    words, caption_words = (
        set(map(singular, normalize_term(text).split()))
        for text in (" ".join((*names, *positions, *facts.absent)), caption)
    )
    if (
        # A normal image has no findings, and any other image has some.
        facts.normal == bool(names)
        or (facts.normal and not says_normal)
        or modalities_disjoint(find_modalities(facts.modality), find_modalities(caption))
        or regions_disjoint(find_regions(facts.organ), find_regions(caption))
        or not words <= caption_words
        or any(parse_finding(text).problem for text in (*names, *facts.absent))
        or any(caption_stance(name, caption) not in ("stated", "") for name in names)
        or any(caption_stance(name, caption) != "denied" for name in facts.absent)
    ):
        return None
    return {
        "organ": facts.organ,
        "modality": facts.modality,
        "findings": "; ".join(names) or NORMAL_FINDING,
        "positions": "; ".join(positions) if any(positions) else "",
        "absent": "; ".join(facts.absent),
    }


def parse_json_object(reply: str) -> dict[str, Any] | None:
    """Return the first JSON object in a reply, or None."""
    # A hostile reply could contain very many opening braces, each of which costs a parse.
    for start in islice(re.finditer(r'\{\s*"', reply), 20):
        try:
            document, _ = json.JSONDecoder().raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            continue
        return dict(document)
    return None


def caption_stance(finding: str, caption: str) -> str:
    """Classify what a caption says about a finding.

    Args:
        finding: the finding.
        caption: the caption.

    Returns:
        `stated`, `denied`, `doubted` (uncertain, past, or different in several places), or "" if
        the caption does not contain the finding in these words.

    >>> caption_stance("effusion", "No effusion."), caption_stance("edema", "Cannot exclude edema.")
    ('denied', 'doubted')
    >>> caption_stance("mass", "A mass without edema.")
    'stated'
    """
    words = r"\W+".join(map(re.escape, re.findall(r"\w+", finding)))
    stances = set()
    for sentence in re.split(r"[.;](?=\s|$)|\n", caption):
        for match in re.finditer(rf"\b{words}\w*", sentence, re.IGNORECASE):
            # Words after the finding's clause are about something else: "a mass without edema".
            following = re.split(
                r"[,(]|\b(?:with|without|and|but|no|while|in)\b",
                sentence[match.end() :],
                maxsplit=1,
            )[0]
            stances.add(_context_stance(sentence[: match.start()], following))
    return next(iter(stances)) if len(stances) == 1 else "doubted" if stances else ""


TRAILING_NEGATION = re.compile(
    r"\bnot(?: \w+)? "
    r"(?:seen|present|identified|visible|visuali[sz]ed|evident|found|noted|detected|observed|demonstrated|appreciated|shown|"
    r"apparent)\b|\b(?:absent|negative|none)\b|^no$"
)
"""Negations that follow their finding; "is not displaced" does not deny a finding."""
UNCERTAIN_CUE = re.compile(
    r"\b(?:can ?not|can'?t|exclu\w+|rul\w+ out|unlikely|but|except)\b",
    re.IGNORECASE,
)


def _context_stance(preceding: str, following: str) -> str:
    """Classify a finding by the text preceding and following it."""
    cues = [find_cues(preceding), find_cues(following)]
    is_negated = [any(kind in ("negated", "normal") for kind, _ in side_cues) for side_cues in cues]
    denied = is_negated[0] or bool(TRAILING_NEGATION.search(normalize_term(following)))
    # "No effusion or edema": in a denial, "or" lists findings and does not express doubt.
    other_cues = {cue for side_cues in cues for kind, cue in side_cues if kind not in ("negated", "normal")} - (
        {"or"} if denied else set()
    )
    if other_cues or UNCERTAIN_CUE.search(f"{preceding} {following}") or (is_negated[1] and not denied):
        return "doubted"
    return "denied" if denied else "stated"


def extract_captions(
    table: pd.DataFrame,
    model: Writer,
    out: Path,
    asking: AskSettings,
) -> dict[str, int]:
    """Have a model extract facts from each caption of a table, and write them to a CSV.

    Rows that `out` already has stay as they are, since a person may have corrected or reviewed
    them. Replies are journalled next to `out` (.captions.jsonl), so that a run that was interrupted
    repeats no request.

    Args:
        table: a table with the columns of `image_table.read_image_table`.
        model: the language model.
        out: table to write (.csv).
        asking: settings of the requests.

    Returns:
        Counts: kept (rows of earlier calls), read (new rows), refused (no valid reply), no_reply
            (the server failed), no_caption.

    Raises:
        BadInput: `out` exists but is not a table that this function wrote.
    """
    finished_rows = _read_finished_rows(out)
    rows = {row["image"]: row for row in table_rows(table)}
    captions = {image: join_lines(row["caption"]) for image, row in rows.items() if row["caption"].strip()}
    # Equal captions share an id, so that each is sent only once.
    ids = {
        image: json.dumps(caption, ensure_ascii=False)
        for image, caption in captions.items()
        if image not in finished_rows
    }
    prompts = {key: fill_template(CAPTION_PROMPT, caption=json.loads(key)) for key in ids.values()}

    def parse(key: str, entry: dict[str, Any]) -> dict[str, str] | None:
        return parse_facts(str(entry["reply"]), json.loads(key))

    with lock_folder(out.parent, f"{out.name}.captions"):
        replies = ask_until_valid(
            model,
            prompts,
            parse,
            asking,
            out.with_suffix(".captions.jsonl"),
            "captions",
        )
        facts = {image: replies.good[key] for image, key in ids.items() if key in replies.good}
        new_rows = (rows[image] | row_facts | {"reviewed": ""} for image, row_facts in sorted(facts.items()))
        output = pd.DataFrame([*finished_rows.values(), *new_rows], columns=list(CAPTION_COLUMNS))
        replace_file(out, lambda path: output.to_csv(path, index=False))
    has_failed = Counter(
        replies.unresolved[key]["status"] == "failed" for key in ids.values() if key in replies.unresolved
    )
    return {
        "kept": len(finished_rows),
        "read": len(facts),
        "refused": has_failed[False],
        "no_reply": has_failed[True],
        "no_caption": len(table) - len(captions),
    }


def _read_finished_rows(out: Path) -> dict[str, dict[str, Any]]:
    """Return image -> row of the table that an earlier call wrote; empty if there is none."""
    if not out.is_file():
        return {}
    table = read_dataframe(out)
    if not set(CAPTION_COLUMNS) <= set(table.columns):
        raise BadInput(
            f"{out}: is not a table of this command "
            f"(it lacks {', '.join(set(CAPTION_COLUMNS) - set(table.columns))}). Give another "
            "--out."
        )
    return {row["image"]: row for row in table_rows(table.fillna("").astype(str))}
