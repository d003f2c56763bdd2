"""Reads a model's reply to prompt A.1 into a question, and finds what is wrong with it by the prompt's own rules.

See also: asking (`question_writing.py`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
