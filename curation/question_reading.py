"""Reads a model's reply to prompt A.1 into a question, and finds what is wrong with it by the prompt's own rules.

Not here: asking (`question_writing.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

COPIED_IN_QUESTION, COPIED_IN_OPTION = 10, 15
"""So many words of a caption in a row mean that it was copied. An option may quote a finding: of the 352 options that
the paper's prompt gave (dataset.json, AI_option_*), none repeats 15 words of a caption, and no question 10."""
LENGTH_RATIO, LENGTH_GAP = 3.0, 40
"""An option that is so many times and so many characters longer than the other stands out whatever the image shows."""

_FIELD = re.compile(
    r"^[\s*_#>`.\-\d)]*?(question|option\s*\(?(?:\d|[a-f]\b)|image\s*\d|\(?[a-d](?=[).:]+\**\s))\s*\d*\s*[*_`)]*\s*[:：.)]\s*[*_`]*\s*(.*)$",
    re.IGNORECASE,
)
_NAMES = {"a": "option1", "optiona": "option1", "b": "option2", "optionb": "option2"}
_WORD = r"\w+|[+\-<>%]"
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

    Bold, list marks, other letter case, blank lines, text around the fields, and answers given as "Option 1" instead of
    its text are taken as meant.
    """
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
    return " ".join(text.replace("**", "").strip().strip("*_`").split()).strip('"“”<> ').strip()


def _plain(text: str) -> str:
    return " ".join(re.findall(_WORD, re.sub(r"^\s*\(?[abAB12][).:]\s+", "", text).casefold()))


def _which(answer: str, options: tuple[str, str]) -> int | None:
    """Which option an answer names, None if neither or both, or if its number names one and its text the other."""
    texts = [_plain(option) for option in options]
    whole = " ".join(re.findall(_WORD, answer.casefold()))
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
    """Whether a text repeats so many words of a caption in a row."""
    for text in texts:
        words = _plain(text).split()
        runs = [f" {' '.join(words[at : at + length])} " for at in range(len(words) - length + 1)]
        if any(run in f" {_plain(caption)} " for caption in captions for run in runs):
            return True
    return False
