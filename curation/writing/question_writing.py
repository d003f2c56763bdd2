"""Let a language model write one question per confusing pair (MediConfusion, section 2.2, prompt A.1), check it, and
ask again where the check fails.

A questions folder holds `journal.jsonl` (every reply, appended as it comes: a killed run goes on and pays nothing
twice), `drafts.parquet` (the pairs that have a question, once and for all: reviewers work on them) and `funnel.json` (how many pairs
fell at each step, tokens, cost).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from curation.writing.asking import AskSettings, Writer, ask_until_valid
from curation.writing.paper_prompts import QUESTION_PROMPT, fill_template, join_lines
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file, write_json
from dataset_builders.journal import read_journal

COPIED_IN_QUESTION, COPIED_IN_OPTION = 10, 15
"""So many words of a caption in a row mean that it was copied. An option may quote a finding: of the 352 options that
the paper's prompt gave (dataset.json, AI_option_*), none repeats 15 words of a caption, and no question 10."""
LENGTH_RATIO, LENGTH_GAP = 3.0, 40
"""An option that is so many times and so many characters longer than the other stands out whatever the image shows."""

REPLY_FIELDS = ("question", "option1", "option2", "image1", "image2")
_FIELD = re.compile(
    r"^[\s*_#>`.\-\d)]*?(question|option\s*\d|image\s*\d)\s*[*_`]*\s*[:.)]\s*[*_`]*\s*(.*)$", re.IGNORECASE
)
_NUMBERED = re.compile(r"(?:option\s*)?([12])(?:\s*[.:)–-]\s*(.*))?", re.IGNORECASE | re.DOTALL)
_REFERENCE = re.compile(
    r"\b(?:image|picture|figure|scan|radiograph|caption)s?\s*(?:[12]\b|one\b|two\b|[ab]\b)"
    r"|(?<!weighted )\bimages\b|\b(?:both|two|first|second|other) (?:image|picture|scan|case|patient)s?\b"
    r"|\bcompar(?:e|ed|es|ing|ison)\b|\bthan the other(?: one)?\s*(?:[?.]|$)|\bcaptions?\b|\bdescriptions?\b|\bunlike\b|\brespectively\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Draft:
    """A question as the model wrote it: `answers[k]` is the position (0, 1) of the right option for image k + 1."""

    question: str
    options: tuple[str, str]
    answers: tuple[int, int]


def parse_draft(reply: str) -> tuple[Draft | None, list[str]]:
    """The first complete question in a reply, or None with the reasons why there is none.

    Bold, list marks, other letter case, blank lines, text around the fields, and answers given as "Option 1" instead of its text are
    taken as meant. What stands before a last </think> is no part of the reply.
    """
    fields: dict[str, str] = {}
    last = ""
    for line in reply.rpartition("</think>")[2].splitlines():
        match = _FIELD.match(line)
        if match:
            name = re.sub(r"\s", "", match.group(1)).lower()
            if name not in REPLY_FIELDS:
                return None, [f"has {'a third image' if name.startswith('image') else 'more than two options'}"]
            if name in fields:
                if len(fields) == 5:
                    break
                if name != "question":
                    return None, [f"field {name} is given twice"]
                fields = {}
            fields[name] = _strip_markup(match.group(2))
            last = name
        elif line.strip() and last and not fields[last]:
            fields[last] = _strip_markup(line)  # the text stands on the line below its name
    missing = [name for name in REPLY_FIELDS if not fields.get(name)]
    if missing:
        return None, [f"no {', '.join(missing)}"]
    options = (fields["option1"], fields["option2"])
    if _normalize_option(options[0]) == _normalize_option(options[1]):
        return None, ["both options read the same"]
    first, second = (_match_answer(fields[name], options) for name in ("image1", "image2"))
    if first is None or second is None:
        return None, ["an answer is neither option"]
    return Draft(fields["question"], options, (first, second)), []


def _strip_markup(text: str) -> str:
    """Without the marks of Markdown and quotation around it."""
    text = " ".join(text.replace("**", "").strip().strip("*_`").split()).strip('"“” ')
    # The prompt shows its placeholders as <ANSWER>; one bracket alone says less or more.
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def _normalize_option(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _match_answer(answer: str, options: tuple[str, str]) -> int | None:
    """The option that an answer names by its text or number; None if neither, or if they name different options."""
    texts = [_normalize_option(option) for option in options]
    if _normalize_option(answer) in texts:  # before numbers: an option may be one
        return texts.index(_normalize_option(answer))
    numbered = _NUMBERED.fullmatch(answer.strip())
    if not numbered:
        return None
    position, rest = int(numbered[1]) - 1, _normalize_option(numbered[2] or "")
    return position if rest in ("", texts[position]) else None


def find_problems(draft: Draft, captions: tuple[str, str]) -> list[str]:
    """Problems of a draft: violations of the rules of prompt A.1, and clues that give an answer away; empty if there are none."""
    found = []
    if draft.answers[0] == draft.answers[1]:
        found.append("the answer is the same for both images")
    for text in (draft.question, *draft.options):
        match = _REFERENCE.search(text)
        if match:
            found.append(f"refers to images or compares ({match.group().lower()!r})")
            break
    if _copies_caption((draft.question,), captions, COPIED_IN_QUESTION) or _copies_caption(
        draft.options, captions, COPIED_IN_OPTION
    ):
        found.append("copies a caption")
    named = [f" {_folded_text(option)} " in f" {_folded_text(draft.question)} " for option in draft.options]
    if named[0] != named[1]:
        found.append("the question names one of its options")
    short, long = sorted(map(len, draft.options))
    if long > LENGTH_RATIO * short and long - short > LENGTH_GAP:
        found.append("one option is much longer than the other")
    return found


def _folded_text(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _copies_caption(texts: tuple[str, ...], captions: tuple[str, str], length: int) -> bool:
    """True if a text repeats so many words of a caption in a row."""
    for text in texts:
        words = _folded_text(text).split()
        runs = [f" {' '.join(words[at : at + length])} " for at in range(len(words) - length + 1)]
        if any(run in f" {_folded_text(caption)} " for caption in captions for run in runs):
            return True
    return False


REPLIES_FILE = "journal.jsonl"
DRAFTS_FILE = "drafts.parquet"
FUNNEL_FILE = "funnel.json"
REVIEWS_FILE = "reviews.jsonl"
"""Log of the reviews; once it exists, no question may change."""
PAIR_COLUMNS = ("image_1", "image_2", "caption_1", "caption_2")


def write_questions(
    pairs: pd.DataFrame, captions: dict[str, str], model: Writer, out: Path, asking: AskSettings
) -> dict[str, Any]:
    """Have a question written for each pair whose captions are both long enough; returns the funnel's counts.

    pairs: i, j, sim_med, sim_gen, image_1, image_2. captions: image -> caption. A pair is asked about up to
    `asking.tries` times until its question is good; refusals of the model count as tries, failures of the server do not
    and are asked again by the next run. A pair that has a question keeps it, and its letters; another model is asked anew until there are
    reviews.
    """
    if not len(pairs):
        raise BadInput(
            "there are no pairs to write questions for. Search with other thresholds (`medprobe curate pairs`)."
        )
    table = pairs.reset_index(drop=True).assign(
        pair_id=[f"{i}-{j}" for i, j in zip(pairs["i"], pairs["j"], strict=True)],
        caption_1=[captions.get(image, "").strip() for image in pairs["image_1"]],
        caption_2=[captions.get(image, "").strip() for image in pairs["image_2"]],
    )
    long_enough = (table["caption_1"].str.len() >= asking.min_caption) & (
        table["caption_2"].str.len() >= asking.min_caption
    )
    wanted = {row["pair_id"]: row for row in table_rows(table[long_enough])}
    with lock_folder(out, "write"):
        held = {row["pair_id"]: row for row in table_rows(read_drafts(out))} if (out / DRAFTS_FILE).is_file() else {}
        if not (out / REVIEWS_FILE).is_file():
            held = {key: row for key, row in held.items() if row["model"] == model.name}
        for key in wanted.keys() & held.keys():
            if any(held[key][side] != wanted[key][side] for side in PAIR_COLUMNS):
                raise BadInput(f"{out}: the question on pair {key} is on other images or captions. Give another --out.")
        # The id is what was asked, so that another caption is asked anew.
        asked = {_prompt_id(row): row for key, row in wanted.items() if key not in held}
        prompts = {
            key: fill_template(
                QUESTION_PROMPT,
                caption_of_image_1=join_lines(row["caption_1"]),
                caption_of_image_2=join_lines(row["caption_2"]),
            )
            for key, row in asked.items()
        }

        def judged(key: str, entry: dict[str, Any]) -> tuple[Draft | None, str]:
            return _judge_reply(entry, (asked[key]["caption_1"], asked[key]["caption_2"]))

        replies = ask_until_valid(
            model, prompts, lambda key, entry: judged(key, entry)[0], asking, out / REPLIES_FILE, "writing"
        )
        good = {key: asked[key] | {"model": model.name} for key in replies.good}
        letters = Counter(row["correct_1"] for row in held.values())
        for key in sorted(good, key=lambda key: hashlib.sha256(f"{asking.seed} {key}".encode()).digest()):
            # Option A is right for image 1 in every second pair, so that no position gives the answer away.
            letter = "A" if letters["A"] <= letters["B"] else "B"
            letters[letter] += 1
            good[key] |= _order_options(replies.good[key], letter)
        drafts = pd.DataFrame([*held.values(), *good.values()], columns=[*table.columns, *DRAFT_COLUMNS])
        replace_file(out / DRAFTS_FILE, lambda partial: drafts.to_parquet(partial, index=False))
        why = Counter(judged(key, entry)[1] for key, entry in replies.last.items())
        entries = read_journal(out / REPLIES_FILE)
        tokens_in, tokens_out = (sum(entry["tokens"][side] for entry in entries if entry["tokens"]) for side in (0, 1))
        price_in, price_out = asking.price or (0, 0)
        cost = round((tokens_in * price_in + tokens_out * price_out) / 1e6, 4)
        funnel = {
            "pairs": len(table),
            "short_caption": int((~long_enough).sum()),
            "asked": len(wanted),
            "had_a_question": len(wanted.keys() & held.keys()),
            "written": len(wanted.keys() & set(drafts["pair_id"])),
            "not_written": dict(sorted(why.items())),
            "replies": sum(entry["status"] != "failed" for entry in entries),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": cost if asking.price else None,
        }
        write_json(out / FUNNEL_FILE, funnel, ensure_ascii=True)
    return funnel


DRAFT_COLUMNS = ("model", "question", "option_A", "option_B", "correct_1", "correct_2")


def _prompt_id(row: dict[str, Any]) -> str:
    asked = "\0".join(row[side] for side in PAIR_COLUMNS)
    return f"{row['pair_id']} {hashlib.sha256(asked.encode()).hexdigest()[:16]}"


def _judge_reply(entry: dict[str, Any], captions: tuple[str, str]) -> tuple[Draft | None, str]:
    """The draft of a reply, or None and in a few words why."""
    if entry["status"] in ("refused", "failed"):
        return None, "refused by the model" if entry["status"] == "refused" else "no reply from the server"
    draft, wrong = parse_draft(entry["reply"])
    if draft is not None:
        wrong = find_problems(draft, captions)
    return (None, wrong[0].split(" (")[0]) if wrong else (draft, "")


def _order_options(draft: Draft, letter: str) -> dict[str, str]:
    """Question, options and right letters; `letter` is that of image 1."""
    first, second = draft.options[draft.answers[0]], draft.options[draft.answers[1]]
    a, b = (first, second) if letter == "A" else (second, first)
    other = "B" if letter == "A" else "A"
    return {"question": draft.question, "option_A": a, "option_B": b, "correct_1": letter, "correct_2": other}


def table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def read_drafts(folder: Path) -> pd.DataFrame:
    """The drafts of a questions folder. Raises BadInput if there are none."""
    if not (folder / DRAFTS_FILE).is_file():
        raise BadInput(
            f"{folder}: holds no {DRAFTS_FILE}. Make it with `medprobe curate write PAIRS --table TABLE --model NAME --out {folder}`."
        )
    return pd.read_parquet(folder / DRAFTS_FILE)
