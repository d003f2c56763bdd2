"""Have a language model read captions: for categories, failure patterns and facts.

MediConfusion's categories of images and patterns in pairs of them (appendix A.2, A.3):
`categories.json` in a questions folder has the list of categories, and the categories of each
image. A reply that names anything outside the list is rejected; no category is guessed from it.

ProbMed's facts (section 3) are organ, modality, findings with positions, and findings declared
absent. The authors had GPT-4 analyze captions "using few-shot prompting" but did not publish their
prompt; `CAPTION_PROMPT` is ours. Model output is not ground truth: a finding or position is
rejected if its words are not in the caption or if the caption denies it. The other facts are
written to a table with a column `reviewed`, which a person fills in; `medprobe curate probe`
refuses a table with unreviewed rows.

See also: requests to the model (`asking.py`), the questions made from such a table
(`custom_sets/probing.py`).
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from curation.images.image_table import read_dataframe, table_rows
from curation.writing.asking import (
    CATEGORY_PROMPT,
    DISCOVER_PROMPT,
    MAX_PROMPT_TEXTS,
    PATTERN_PAIR,
    PATTERNS_PROMPT,
    PROMPT_CATEGORIES,
    AskSettings,
    Parsed,
    Writer,
    ask_until_valid,
    fill_template,
    join_lines,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file, write_json
from dataset_builders.label_reading import find_cues, parse_finding
from dataset_builders.terms import (
    find_modalities,
    find_regions,
    modalities_disjoint,
    normalize_term,
    regions_disjoint,
    singular,
)

CATEGORIES_FILE = "categories.json"


def image_captions(drafts: pd.DataFrame) -> dict[str, str]:
    """Map each image in the drafts to its caption."""
    return {
        **dict(zip(drafts["image_1"], drafts["caption_1"], strict=True)),
        **dict(zip(drafts["image_2"], drafts["caption_2"], strict=True)),
    }


def discover_categories(
    drafts: pd.DataFrame,
    model: Writer,
    out: Path,
    asking: AskSettings,
) -> list[str]:
    """Have a model propose categories for a random sample of at most 100 captions.

    Args:
        drafts: drafts of the pairs.
        model: the language model.
        out: questions folder, for the journal.
        asking: settings of the requests; the seed decides which captions are drawn.

    Returns:
        Names of two or more categories.

    Raises:
        BadInput: no reply lists two or more categories.
    """
    captions = sorted(set(image_captions(drafts).values()))
    chosen = np.random.default_rng(asking.seed).permutation(len(captions))[:MAX_PROMPT_TEXTS]
    lines = "\n".join(f"Caption {number}: {join_lines(captions[index])}" for number, index in enumerate(chosen))

    def parse(reply: str) -> list[str] | None:
        names = list(dict.fromkeys(name for line in reply.splitlines() if (name := _parse_heading(line))))
        return names if len(names) > 1 else None

    return _ask_single_prompt(
        model,
        "discover",
        fill_template(DISCOVER_PROMPT, captions=lines),
        parse,
        out,
        asking,
    )


def _parse_heading(line: str) -> str | None:
    """Return the category in a list item or heading: the words before a colon, bracket or dash."""
    match = re.match(r"\s*(?:(?:[#*\-•]+|\d+[.)])\s+(.*)|(\*\*.+\*\*.*))$", line)
    text = re.split(r"[:(]| [-–—] ", (match[1] or match[2]).replace("*", ""))[0].strip(" .") if match else ""
    # A model may repeat the captions, so a category has no digits, at most five words, and does not
    # begin with "Caption".
    return text if re.fullmatch(r"(?!(?i:caption))[^\d\s]+(?: [^\d\s]+){0,4}", text) else None


def parse_categories(reply: str, choices: list[str]) -> list[str]:
    """Parse the categories named in a reply.

    Args:
        reply: names separated by commas or lines, and nothing else.
        choices: the list of categories.

    Returns:
        Categories in the order of the reply; empty if the reply contains anything else.

    >>> parse_categories("Head and Neck, Vascular.", ["Vascular", "Head and Neck"])
    ['Head and Neck', 'Vascular']
    >>> parse_categories("not Vascular", ["Vascular"])
    []
    """
    plain = re.sub(r"^\s*categor(?:y|ies)\s*:", "", reply.replace("*", ""), flags=re.IGNORECASE)
    parts = [part.strip(" .\"'`-") for part in re.split(r"[,;/\n]", plain)]
    names = {name.casefold(): name for name in choices}
    matches = [names.get(part.casefold()) for part in parts if part]
    return [] if None in matches else list(dict.fromkeys(name for name in matches if name))


def categorize_images(
    drafts: pd.DataFrame,
    model: Writer,
    out: Path,
    asking: AskSettings,
    choices: list[str] | None = None,
) -> dict[str, Any]:
    """Have a model categorize each image by its caption, and write categories.json.

    Args:
        drafts: drafts of the pairs.
        model: the language model.
        out: questions folder.
        asking: settings of the requests.
        choices: the categories; the paper's by default.

    Returns:
        The content of categories.json: `categories` (the list), `images` (image -> its categories),
        `refused` (image -> last reply, for images without a valid reply; a reviewer categorizes
        them), and `unasked` (images without any reply).
    """
    choices = choices or list(PROMPT_CATEGORIES)
    journal = out / "categories.jsonl"
    captions = image_captions(drafts)
    # The id contains the list and the caption, so that a change of either leads to a new request.
    ids = {image: json.dumps([choices, caption], ensure_ascii=False) for image, caption in captions.items()}
    prompts = {
        ids[image]: fill_template(
            CATEGORY_PROMPT,
            image_caption=join_lines(caption),
            categories=", ".join(choices),
        )
        for image, caption in captions.items()
    }

    def parse(_: str, entry: dict[str, Any]) -> list[str] | None:
        return parse_categories(entry["reply"], choices) or None

    with lock_folder(out, "categorize"):
        valid, unresolved = ask_until_valid(model, prompts, parse, asking, journal, "categorizing")
        categories = {image: valid[key] for image, key in ids.items() if key in valid}
        bad_replies = {image: unresolved[key] for image, key in ids.items() if key in unresolved}
        refused = {
            image: entry["reply"] or f"({entry['status']})"
            for image, entry in bad_replies.items()
            if entry["status"] != "failed"
        }
        unasked = sorted(image for image in captions if image not in categories and image not in refused)
        document = {
            "categories": choices,
            "images": categories,
            "refused": refused,
            "unasked": unasked,
        }
        write_json(out / CATEGORIES_FILE, document)
    return document


def load_categories(folder: Path) -> dict[str, list[str]]:
    """Load image -> categories of a questions folder; empty if nothing was categorized."""
    file = folder / CATEGORIES_FILE
    return json.loads(file.read_text(encoding="utf-8"))["images"] if file.is_file() else {}


def find_patterns(drafts: pd.DataFrame, model: Writer, out: Path, asking: AskSettings) -> str:
    """Have a model describe failure patterns in a random sample of at most 100 pairs.

    The paper's prompt mentions options but has a placeholder for the question only, so the options
    are put after the question on the same line.

    Args:
        drafts: drafts of the pairs.
        model: the language model.
        out: questions folder; the reply is written to its patterns.md.
        asking: settings of the requests; the seed decides which pairs are drawn.

    Returns:
        The reply.

    Raises:
        BadInput: the model gave no reply.
    """
    rows = drafts.iloc[np.sort(np.random.default_rng(asking.seed).permutation(len(drafts))[:MAX_PROMPT_TEXTS])]
    blocks = [
        fill_template(
            PATTERN_PAIR,
            number=str(number),
            image_1_caption=join_lines(row["caption_1"]),
            image_2_caption=join_lines(row["caption_2"]),
            question=join_lines(f"{row['question']} A: {row['option_A']} B: {row['option_B']}"),
        )
        for number, row in enumerate(table_rows(rows))
    ]
    prompt = fill_template(PATTERNS_PROMPT, pairs="\n".join(blocks))
    reply = _ask_single_prompt(model, "patterns", prompt, lambda reply: reply, out, asking)
    replace_file(out / "patterns.md", f"{reply}\n".encode())
    return reply


def _ask_single_prompt(
    model: Writer,
    task: str,
    prompt: str,
    parse: Callable[[str], Parsed | None],
    out: Path,
    asking: AskSettings,
) -> Parsed:
    """Return the parsed valid reply to a prompt, from the journal if it was sent before."""
    key = f"{task} {hashlib.sha256(prompt.encode()).hexdigest()[:16]}"

    def parse_entry(_: str, entry: dict[str, Any]) -> Parsed | None:
        return parse(entry["reply"]) if entry["status"] == "answered" and entry["reply"].strip() else None

    with lock_folder(out, task):
        valid, unresolved = ask_until_valid(
            model,
            {key: prompt},
            parse_entry,
            asking,
            out / "patterns.jsonl",
            task,
        )
    if key in valid:
        return valid[key]
    entry = unresolved[key]
    raise BadInput(
        f"{task}: the model gave no usable reply "
        f"({(entry['error'] or entry['reply'] or entry['status'])[:120]}). "
        "Run the command again if the server failed; otherwise give another --model or --seed."
    )


# Facts for probes

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
        valid, unresolved = ask_until_valid(
            model,
            prompts,
            parse,
            asking,
            out.with_suffix(".captions.jsonl"),
            "captions",
        )
        facts = {image: valid[key] for image, key in ids.items() if key in valid}
        new_rows = (rows[image] | row_facts | {"reviewed": ""} for image, row_facts in sorted(facts.items()))
        output = pd.DataFrame([*finished_rows.values(), *new_rows], columns=list(CAPTION_COLUMNS))
        replace_file(out, lambda path: output.to_csv(path, index=False))
    has_failed = Counter(unresolved[key]["status"] == "failed" for key in ids.values() if key in unresolved)
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
    missing = [column for column in CAPTION_COLUMNS if column not in table.columns]
    if missing:
        raise BadInput(f"{out}: is not a table of this command (it lacks {', '.join(missing)}). Give another --out.")
    return {row["image"]: row for row in table_rows(table.fillna("").astype(str))}
