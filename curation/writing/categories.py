"""Image categories and failure patterns by a language model (MediConfusion, appendix A.2 and A.3).

`categories.json` of a questions folder holds the list and each image's categories; a reply that names none of the list
is refused, never guessed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curation.writing.asking import AskSettings, Parsed, Writer, ask_until_valid
from curation.writing.paper_prompts import (
    CATEGORY_PROMPT,
    DISCOVER_PROMPT,
    MAX_PROMPT_TEXTS,
    PATTERN_PAIR,
    PATTERNS_PROMPT,
    PROMPT_CATEGORIES,
    fill_template,
    join_lines,
)
from curation.writing.question_writing import table_rows
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file, write_json

CATEGORIES_FILE = "categories.json"


def image_captions(drafts: pd.DataFrame) -> dict[str, str]:
    """image -> caption of all images in the drafts."""
    return {
        **dict(zip(drafts["image_1"], drafts["caption_1"], strict=True)),
        **dict(zip(drafts["image_2"], drafts["caption_2"], strict=True)),
    }


def discover_categories(drafts: pd.DataFrame, model: Writer, out: Path, asking: AskSettings) -> list[str]:
    """Categories that the model sees in (at most) 100 captions drawn with the seed. Raises BadInput if no reply
    lists them."""
    captions = sorted(set(image_captions(drafts).values()))
    chosen = np.random.default_rng(asking.seed).permutation(len(captions))[:MAX_PROMPT_TEXTS]
    lines = "\n".join(f"Caption {index}: {join_lines(captions[at])}" for index, at in enumerate(chosen))

    def names(reply: str) -> list[str] | None:
        found = list(dict.fromkeys(name for line in reply.splitlines() if (name := _parse_heading(line))))
        return found if len(found) > 1 else None

    return _ask_single_prompt(model, "discover", fill_template(DISCOVER_PROMPT, captions=lines), names, out, asking)


def _parse_heading(line: str) -> str | None:
    """The category that a line of a list or a heading names: a few words, before any colon, bracket or dash."""
    item = re.match(r"\s*(?:(?:[#*\-•]+|\d+[.)])\s+(.*)|(\*\*.+\*\*.*))$", line)
    text = re.split(r"[:(]| [-–—] ", (item[1] or item[2]).replace("*", ""))[0].strip(" .") if item else ""
    return text if re.fullmatch(r"(?!(?i:caption))[^\d\s]+(?: [^\d\s]+){0,4}", text) else None


def parse_categories(reply: str, known: list[str]) -> list[str]:
    """The categories that a reply names, in its order: the reply must be nothing but names from the list, separated by commas or lines.

    >>> read_categories("Head and Neck, Vascular.", ["Vascular", "Head and Neck"])
    ['Head and Neck', 'Vascular']
    >>> read_categories("not Vascular", ["Vascular"])
    []
    """
    plain = re.sub(r"^\s*categor(?:y|ies)\s*:", "", reply.replace("*", ""), flags=re.IGNORECASE)
    named = [part.strip(" .\"'`-") for part in re.split(r"[,;/\n]", plain)]
    names = {name.casefold(): name for name in known}
    found = [names.get(part.casefold()) for part in named if part]
    return [] if None in found else list(dict.fromkeys(name for name in found if name))


def categorize_images(
    drafts: pd.DataFrame,
    model: Writer,
    out: Path,
    asking: AskSettings,
    known: list[str] | None = None,
) -> dict[str, Any]:
    """Ask for the category of each image by its caption, write out/categories.json and return it: `categories`,
    `images`, `refused`.

    `known`: the list to choose from (the paper's by default). An image whose replies name none of the list, after all
    tries, is listed under `refused` with the last reply and gets no category; a reviewer gives it one.
    """
    known = known or list(PROMPT_CATEGORIES)
    journal = out / "categories.jsonl"
    captions = image_captions(drafts)
    # The id is what was asked, so that another list or caption is asked anew.
    ids = {image: json.dumps([known, caption], ensure_ascii=False) for image, caption in captions.items()}
    prompts = {
        ids[image]: fill_template(CATEGORY_PROMPT, image_caption=join_lines(caption), categories=", ".join(known))
        for image, caption in captions.items()
    }

    def named(_: str, entry: dict[str, Any]) -> list[str] | None:
        return parse_categories(entry["reply"], known) or None

    with lock_folder(out, "categorize"):
        replies = ask_until_valid(model, prompts, named, asking, journal, "categorizing")
        given = {image: replies.good[key] for image, key in ids.items() if key in replies.good}
        last = {image: replies.last[key] for image, key in ids.items() if key in replies.last}
        refused = {
            image: entry["reply"] or f"({entry['status']})"
            for image, entry in last.items()
            if entry["status"] != "failed"
        }
        unasked = sorted(image for image in captions if image not in given and image not in refused)
        result = {"categories": known, "images": given, "refused": refused, "unasked": unasked}
        write_json(out / CATEGORIES_FILE, result)
    return result


def load_categories(folder: Path) -> dict[str, list[str]]:
    """image -> categories of a questions folder; empty where nothing was categorized."""
    file = folder / CATEGORIES_FILE
    return json.loads(file.read_text(encoding="utf-8"))["images"] if file.is_file() else {}


def find_patterns(drafts: pd.DataFrame, model: Writer, out: Path, asking: AskSettings) -> str:
    """Failure patterns that the model sees in (at most) 100 pairs drawn with the seed; the reply is written to
    out/patterns.md.

    The prompt speaks of options, its placeholder only of the question: the options follow the question on the same
    line.
    """
    rows = drafts.iloc[np.sort(np.random.default_rng(asking.seed).permutation(len(drafts))[:MAX_PROMPT_TEXTS])]
    blocks = [
        fill_template(
            PATTERN_PAIR,
            number=str(index),
            image_1_caption=join_lines(row["caption_1"]),
            image_2_caption=join_lines(row["caption_2"]),
            question=join_lines(f"{row['question']} A: {row['option_A']} B: {row['option_B']}"),
        )
        for index, row in enumerate(table_rows(rows))
    ]
    reply = _ask_single_prompt(
        model, "patterns", fill_template(PATTERNS_PROMPT, pairs="\n".join(blocks)), lambda reply: reply, out, asking
    )
    replace_file(out / "patterns.md", f"{reply}\n".encode())
    return reply


def _ask_single_prompt(
    model: Writer, task: str, prompt: str, read: Callable[[str], Parsed | None], out: Path, asking: AskSettings
) -> Parsed:
    """A good reply to one prompt, as read; that of the journal where the same was asked before."""
    key = f"{task} {hashlib.sha256(prompt.encode()).hexdigest()[:16]}"

    def good(_: str, entry: dict[str, Any]) -> Parsed | None:
        return read(entry["reply"]) if entry["status"] == "answered" and entry["reply"].strip() else None

    with lock_folder(out, task):
        replies = ask_until_valid(model, {key: prompt}, good, asking, out / "patterns.jsonl", task)
    if key in replies.good:
        return replies.good[key]
    last = replies.last[key]
    raise BadInput(
        f"{task}: the model gave no usable reply ({(last['error'] or last['reply'] or last['status'])[:120]}). Run the command again where "
        "the server failed; else give another --model or --seed."
    )
