"""Let a language model write one question per confusing pair (MediConfusion, section 2.2, prompt A.1), check it, and
ask again where the check fails.

A questions folder holds `journal.jsonl` (every reply, appended as it comes: a killed run goes on and pays nothing
twice), `drafts.parquet` (the pairs with a good question), `letters.json` (which option is right for the first image of
each pair, once and for all) and `funnel.json` (how many pairs fell at each step, tokens, cost).

See also: categories and patterns (`categories.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from curation.writing.asking import Asking, Writer, ask_until_good
from curation.writing.prompts import WRITE, fill, one_line
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, replace_file, write_json
from dataset_builders.journal import read_journal

COPIED_IN_QUESTION, COPIED_IN_OPTION = 10, 15
"""So many words of a caption in a row mean that it was copied. An option may quote a finding: of the 352 options that
the paper's prompt gave (dataset.json, AI_option_*), none repeats 15 words of a caption, and no question 10."""
LENGTH_RATIO, LENGTH_GAP = 3.0, 40
"""An option that is so many times and so many characters longer than the other stands out whatever the image shows."""

_FIELD = re.compile(
    r"^[\s*_#>`.\-\d)]*?(question|option\s*\(?(?:\d|[a-f]\b)|image\s*\d|\(?[a-d](?=[).:]+\**\s))\s*\d*\s*(?:\([^()]{1,40}\))?\s*[*_`)]*\s*[:：.)]\s*[*_`]*\s*(.*)$",
    re.IGNORECASE,
)
_NAMES = {"a": "option1", "optiona": "option1", "b": "option2", "optionb": "option2"}
_WORD = re.compile(r"\w+|[^\w\s]")
FIELDS = ("question", "option1", "option2", "image1", "image2")
_NUMBERED = re.compile(
    r"(?:option\s*\(?([12ab])\)?|\(?([12ab])(?=\s*[).:])|([12])(?=\s|$)|([ab])$)[.:)\s\-–]*(.*)",
    re.IGNORECASE | re.DOTALL,
)
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


def read_reply(reply: str) -> tuple[Draft | None, list[str]]:
    """The first complete question in a reply, or None with the reasons why there is none.

    Bold, list marks, other letter case, blank lines, text around the fields, a JSON object, and answers given as "Option 1"
    instead of its text are taken as meant. What stands before a last </think> is no part of the reply.
    """
    reply = reply.rpartition("</think>")[2]
    draft, wrong = _read_lines(reply)
    given = json_object(reply) if draft is None else None
    return (draft, wrong) if given is None else _read_lines(_as_lines(given))


def json_object(reply: str) -> dict[str, Any] | None:
    """The first JSON object in a reply, or None."""
    for start in islice(re.finditer(r'\{\s*"', reply), 20):  # no reply holds more of them for a good reason
        try:
            found, _ = json.JSONDecoder().raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            continue
        if found:
            return dict(found)
    return None


def _as_lines(given: dict[str, Any]) -> str:
    """A JSON object as the lines that the prompt asks for: `options` and `answers` may be lists or objects of their own."""
    lines = []
    for key, value in given.items():
        name = re.sub(r"[_\-]+", " ", str(key))
        named = re.search(r"(image|option)\s*([1-9a-f])\b", name, re.IGNORECASE)
        if isinstance(value, dict):
            lines.append(_as_lines(value))
        elif isinstance(value, list):
            kind = "Image" if re.search(r"image|answer|correct", name, re.IGNORECASE) else "Option"
            lines += [
                _as_lines(item) if isinstance(item, dict) else f"{kind}{at}: {_one_line(item)}"
                for at, item in enumerate(value, 1)
            ]
        else:
            lines.append(f"{named[1] + named[2] if named else name}: {_one_line(value)}")
    return "\n".join(lines)


def _one_line(value: object) -> str:
    return " ".join(str(value).split())


def _read_lines(reply: str) -> tuple[Draft | None, list[str]]:
    """`read_reply` of lines `Question: ...`."""
    fields: dict[str, str] = {}
    last = ""
    for line in reply.splitlines():
        match = _FIELD.match(line)
        if match:
            name = re.sub(r"[\s(]", "", match.group(1)).lower()
            name = _NAMES.get(name, name)
            if name not in FIELDS:
                return None, [f"has {'a third image' if name.startswith('image') else 'more than two options'}"]
            if name in fields:
                if len(fields) == 5:
                    break
                if name != "question":
                    return None, [f"field {name} is given twice"]
                fields = {}
            fields[name] = _clean(match.group(2))
            last = name
        elif line.strip() and last and not fields[last]:
            fields[last] = _clean(line)  # the text stands on the line below its name
        elif not line.strip() and len(fields) == 5:
            last = ""
    missing = [name for name in FIELDS if not fields.get(name)]
    if missing:
        return None, [f"no {', '.join(missing)}"]
    options = (fields["option1"], fields["option2"])
    if _plain(options[0]) == _plain(options[1]):
        return None, ["both options read the same"]
    answers = [_which(fields[name], options) for name in ("image1", "image2")]
    first, second = answers
    if first is None or second is None:
        return None, ["an answer is neither option"]
    return Draft(fields["question"], options, (first, second)), []


def _clean(text: str) -> str:
    """Without the marks of Markdown and quotation around it."""
    text = " ".join(text.replace("**", "").strip().strip("*_`").split()).strip('"“” ')
    # The prompt shows its placeholders as <ANSWER>; one bracket alone says less or more.
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def _plain(text: str) -> str:
    return _words(re.sub(r"^\s*\(?[abAB12][).:]\s+", "", text))


def _words(text: str) -> str:
    """Words and signs that mean something (+, -, %, <, mathematical and other symbols), one space between them; no punctuation."""
    found = _WORD.findall(text.casefold())
    return " ".join(word for word in found if word[0].isalnum() or word[0] in "_-%" or _means(word[0]))


def _means(sign: str) -> bool:
    """True if a sign is a symbol or the mark of a letter, not punctuation."""
    kind = unicodedata.category(sign)
    return kind in ("Sm", "So", "Sc") or kind[0] == "M"


def _which(answer: str, options: tuple[str, str]) -> int | None:
    """Which option an answer names, None if neither or both, or if its number names one and its text the other."""
    texts = [_plain(option) for option in options]
    whole = _words(answer)
    if whole in texts:  # before numbers: an option may be one
        return texts.index(whole)
    numbered = _NUMBERED.fullmatch(answer.strip())
    plain = _plain(answer)
    if numbered:
        mark, rest = next(group for group in numbered.groups()[:4] if group), numbered.group(5)
        position = "12ab".index(mark.lower()) % 2
        rest = _plain(rest.strip(" ()"))
        return position if not rest or rest == texts[position] else None
    if plain in texts:
        return texts.index(plain)
    held = [position for position, text in enumerate(texts) if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", plain)]
    return held[0] if len(held) == 1 else None


def problems(draft: Draft, captions: tuple[str, str]) -> list[str]:
    """What is wrong with a draft by the rules of prompt A.1 and by what gives an answer away; empty where nothing
    is."""
    found = []
    if draft.answers[0] == draft.answers[1]:
        found.append("the answer is the same for both images")
    for text in (draft.question, *draft.options):
        match = _REFERENCE.search(text)
        if match:
            found.append(f"refers to images or compares ({match.group().lower()!r})")
            break
    if _copied((draft.question,), captions, COPIED_IN_QUESTION) or _copied(draft.options, captions, COPIED_IN_OPTION):
        found.append("copies a caption")
    named = [f" {_plain(option)} " in f" {_plain(draft.question)} " for option in draft.options]
    if named[0] != named[1]:
        found.append("the question names one of its options")
    short, long = sorted(map(len, draft.options))
    if long > LENGTH_RATIO * short and long - short > LENGTH_GAP:
        found.append("one option is much longer than the other")
    return found


def _copied(texts: tuple[str, ...], captions: tuple[str, str], length: int) -> bool:
    """True if a text repeats so many words of a caption in a row."""
    for text in texts:
        words = _plain(text).split()
        runs = [f" {' '.join(words[at : at + length])} " for at in range(len(words) - length + 1)]
        if any(run in f" {_plain(caption)} " for caption in captions for run in runs):
            return True
    return False


JOURNAL = "journal.jsonl"
DRAFTS = "drafts.parquet"
FUNNEL = "funnel.json"
LETTERS = "letters.json"
REVIEWS = "reviews.jsonl"
"""What reviewers said; from then on no question may change."""


def write_questions(
    pairs: pd.DataFrame, captions: dict[str, str], model: Writer, out: Path, asking: Asking
) -> dict[str, Any]:
    """Have a question written for each pair whose captions are both long enough; returns the funnel's counts.

    pairs: i, j, sim_med, sim_gen, image_1, image_2. captions: image -> caption. A pair is asked about up to
    `asking.tries` times until its question is good; refusals of the model count as tries, failures of the server do not
    and are asked again by the next run. The right option of image 1 is A in every second pair (in an order drawn from
    the seed), so that no position gives the answer away.
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
    wanted = table[long_enough].set_index("pair_id", drop=False)
    prompts = {
        row["pair_id"]: fill(
            WRITE, caption_of_image_1=one_line(row["caption_1"]), caption_of_image_2=one_line(row["caption_2"])
        )
        for row in records(wanted)
    }
    journal = out / JOURNAL
    with lock(out, "write"):
        _same_asking(out, wanted, model.name)
        about = {row["pair_id"]: (row["caption_1"], row["caption_2"]) for row in records(wanted)}
        replies = ask_until_good(
            model, prompts, lambda key, entry: _judged(entry, about[key])[0], asking, journal, "writing"
        )
        _write_drafts(out / DRAFTS, wanted, replies.good, asking.seed)
        why = {key: _judged(entry, about[key])[1] for key, entry in replies.last.items()}
        why |= dict.fromkeys(replies.failed, "no reply from the server")
        tokens = [entry["tokens"] or (0, 0) for entry in read_journal(journal)]
        tokens_in, tokens_out = (sum(each[side] for each in tokens) for side in (0, 1))
        funnel = {
            "pairs": len(table),
            "short_caption": int((~long_enough).sum()),
            "asked": len(wanted),
            "written": len(replies.good),
            "not_written": dict(sorted(Counter(why.values()).items())),
            "replies": replies.tried.total(),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": asking.cost((tokens_in, tokens_out)),
        }
        write_json(out / FUNNEL, funnel, ensure_ascii=True)
    return funnel


def _same_asking(out: Path, wanted: pd.DataFrame, model: str) -> None:
    """Raises BadInput where the folder's pairs had other images or captions, or are reviewed and were asked of another model: what people
    have reviewed must not change. Another model is asked anew only for questions that have not been reviewed."""
    digest = {
        row["pair_id"]: hashlib.sha256(
            "\0".join((row["image_1"], row["image_2"], row["caption_1"], row["caption_2"])).encode()
        ).hexdigest()[:16]
        for row in records(wanted)
    }
    file = out / "asked.json"
    before: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"model": model, "pairs": {}}
    if before["model"] != model and (out / REVIEWS).is_file():
        raise BadInput(
            f"{out}: its questions were asked of {before['model']!r} and are reviewed. Give another --out for those of {model!r}."
        )
    changed = [key for key, value in digest.items() if before["pairs"].get(key, value) != value]
    if changed:
        raise BadInput(
            f"{out}: pair {changed[0]} and {len(changed) - 1} more had other images or captions when asked about. Give another --out."
        )
    write_json(file, {"model": model, "pairs": before["pairs"] | digest}, indent=None, ensure_ascii=True)


def _judged(entry: dict[str, Any], captions: tuple[str, str]) -> tuple[Draft | None, str]:
    """The draft of a reply, or None and in a few words why."""
    if entry["status"] == "refused":
        return None, "refused by the model"
    draft, wrong = read_reply(entry["reply"])
    if draft is not None:
        wrong = problems(draft, captions)
    return (None, wrong[0].split(" (")[0]) if wrong else (draft, "")


def _write_drafts(path: Path, wanted: pd.DataFrame, good: dict[str, Draft], seed: int) -> None:
    """The pairs with a good question; option A is right for image 1 in every second of them."""
    letters = _letters(path.parent, list(good), seed)
    rows = []
    for key in (key for key in wanted.index if key in good):
        draft = good[key]
        first, second = draft.options[draft.answers[0]], draft.options[draft.answers[1]]
        a, b = (first, second) if letters[key] == "A" else (second, first)
        rows.append(
            {
                **wanted.loc[key].to_dict(),
                "question": draft.question,
                "option_A": a,
                "option_B": b,
                "correct_1": letters[key],
                "correct_2": "B" if letters[key] == "A" else "A",
            }
        )
    columns = [*wanted.columns, "question", "option_A", "option_B", "correct_1", "correct_2"]
    replace_file(path, lambda partial: pd.DataFrame(rows, columns=columns).to_parquet(partial, index=False))


def _letters(out: Path, good: list[str], seed: int) -> dict[str, str]:
    """Which option is right for image 1, by pair. A letter once given stays, also when a later run adds pairs: reviewers fix
    options by their letter."""
    file = out / LETTERS
    given: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
    used = Counter(given.values())
    new = [key for key in good if key not in given]
    for key in sorted(new, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest()):
        given[key] = "A" if used["A"] <= used["B"] else "B"
        used[given[key]] += 1
    write_json(file, given, indent=None, ensure_ascii=True)
    return given


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def read_drafts(folder: Path) -> pd.DataFrame:
    """The drafts of a questions folder. Raises BadInput where there are none."""
    if not (folder / DRAFTS).is_file():
        raise BadInput(
            f"{folder}: holds no {DRAFTS}. Make it with `medprobe curate write PAIRS --table TABLE --model NAME --out {folder}`."
        )
    return pd.read_parquet(folder / DRAFTS)
