"""Have a language model categorize images and describe failure patterns (MediConfusion, A.2, A.3).

`categories.json` in a questions folder has the list of categories, and the categories of each
image. A reply that names anything outside the list is rejected; no category is guessed from it.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
from curation.writing.question_writing import table_rows
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file, write_json

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
        replies = ask_until_valid(model, prompts, parse, asking, journal, "categorizing")
        categories = {image: replies.good[key] for image, key in ids.items() if key in replies.good}
        bad_replies = {image: replies.unresolved[key] for image, key in ids.items() if key in replies.unresolved}
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
        replies = ask_until_valid(
            model,
            {key: prompt},
            parse_entry,
            asking,
            out / "patterns.jsonl",
            task,
        )
    if key in replies.good:
        return replies.good[key]
    entry = replies.unresolved[key]
    raise BadInput(
        f"{task}: the model gave no usable reply "
        f"({(entry['error'] or entry['reply'] or entry['status'])[:120]}). "
        "Run the command again if the server failed; otherwise give another --model or --seed."
    )
