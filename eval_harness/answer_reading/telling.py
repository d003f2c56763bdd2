"""Options named by the words that tell them apart, in any order and form ("the femur is fractured" for "fracture of the femur")."""

from __future__ import annotations

import re

from eval_harness.answer_reading.letters import Found, most
from eval_harness.answer_reading.mentions import (
    AGREES,
    ASSERTS,
    COMPOUND,
    DEFINES_AFTER,
    ONLY_NEAR,
    PROSE,
    SEEN_AFTER,
    SHORT,
    UNHARMED,
    WEIGHED,
    WORD,
)
from eval_harness.answer_reading.options import DENIED, STOP, OptionTexts, stem
from eval_harness.answer_reading.polarity import clause_before, is_denied, negated_before

_DEFINITION = re.compile(
    r"\b(?:is|are) (?:\w+ly )?(?:used|defined|a (?:type|kind|form|condition|disease|procedure|device|rare|common)|an? \w+ (?:that"
    r"|which))\b|\brefers? to\b",
    re.IGNORECASE,
)


def telling_words(text: str, texts: OptionTexts, multiple: bool) -> Found:
    """The one option whose words are all said, or whose telling words (those no other option has) are, with none that tell another.

    Words count by their stems, in any order: "the femur is fractured" for "fracture of the femur" against "dislocation of the hip". Of
    three or more telling words one may be missing, of eight or more a quarter. A response of a few words that are all one option's
    names it, if another option has not all of them ("thyroid" for "thyroid gland").
    """
    if (named := _fragment(text, texts)) is not None:
        return (named,)
    if len(text) > PROSE or not any(texts.stems) or _DEFINITION.search(text):
        return None
    known = frozenset().union(*texts.stems)
    said: set[str] = set()
    asserted: set[str] = set()
    short = len(text.split()) <= SHORT
    left_to_look = most(text)
    for match in WORD.finditer(text):
        word = stem(match[0].lower())
        if word not in known and DENIED + word not in known:
            continue
        left_to_look -= 1
        if left_to_look < 0:
            return None
        if COMPOUND.search(text, max(0, match.start() - 8), match.start()):
            continue
        if is_denied(text, match.start(), match.end()):
            if negated_before(text, match.start()):
                said.add(DENIED + word)
                asserted.add(DENIED + word)
            continue
        before = clause_before(text, match.start())
        if before[-4:].lower() in ("non-", "non ") and "non" not in known:
            return None
        if WEIGHED.search(before):
            continue
        if word == "right" and AGREES.search(before):
            continue
        if UNHARMED.match(text, match.end()):
            continue
        said.add(word)
        seen = ASSERTS.search(before) or SEEN_AFTER.match(text, match.end())
        if not ONLY_NEAR.search(before) and (seen or (short and not DEFINES_AFTER.match(text, match.end()))):
            asserted.add(word)
    whole = [option for option, stems in enumerate(texts.stems) if stems and stems <= said]
    whole = [option for option in whole if not any(texts.stems[option] < texts.stems[other] for other in whole)]
    if len(whole) > 1:
        return ()
    told = {option for option, words in enumerate(texts.telling) if words & said}
    candidates = whole or [
        option
        for option in told
        if len(texts.telling[option] & said) >= max(2, _enough(len(texts.telling[option])))
        or texts.telling[option] <= said
    ]
    if len(candidates) != 1 or told - set(candidates):
        return () if len(told) > 1 else None
    option = candidates[0]
    if not whole and _is_replaced(text, option, texts.stems[option] - said, texts):
        return None
    return (option,) if texts.stems[option] & asserted else None


def _enough(count: int) -> int:
    """How many of so many telling words have to be said."""
    return count - max(1, count // 4)


def _fragment(text: str, texts: OptionTexts) -> int | None:
    if len(text) > 60:
        return None
    said = {stem(word[0].lower()) for word in WORD.finditer(text) if word[0].lower() not in _FILLERS}
    if not said or len(said) > 4:
        return None
    options = [option for option, stems in enumerate(texts.stems) if said <= stems]
    if len(options) != 1 or not said & texts.telling[options[0]]:
        return None
    missing = [word for word in texts.words[options[0]] if stem(word) not in said]
    head = next(iter(_HEAD.split(" ".join(texts.words[options[0]]), maxsplit=1))).split(" ")[-1]
    if (head in missing and head not in _GENERIC_HEADS) or not _QUALIFIERS.isdisjoint(missing):
        return None
    return options[0]


_FILLERS = STOP | {"a", "most", "likely", "probably", "all", "none", "above"}
_HEAD = re.compile(r" (?:of|in|on|at|to|with|for|by|from|and|extending|within|involving|without) ")
"""What ends the noun that names an option: its last word has to be said ("cancer" names "lung cancer", "lung" does not)."""
_GENERIC_HEADS = frozenset({"gland", "organ", "region", "area", "view", "side", "sign", "image", "scan"})
_QUALIFIERS = frozenset(
    {"normal", "abnormal", "healthy", "absent", "negative", "positive", "early", "late", "benign", "malignant"}
)
"""Words that may not be missing: "kidney" does not name "normal kidney"."""


def _is_replaced(text: str, option: int, missing: frozenset[str], texts: OptionTexts) -> bool:
    """Whether another word stands where a missing word of the option would ("squamous cell carcinoma" for "basal cell carcinoma")."""
    own = [stem(word) for word in texts.words[option]]
    said = [word.lower() for word in WORD.findall(text)]
    for place, word in enumerate(own):
        if word not in missing or len(own) == 1:
            continue
        after = place + 1 < len(own)
        neighbour = own[place + 1] if after else own[place - 1]
        if neighbour in STOP:
            continue
        for at, other in enumerate(said):
            slot = at - 1 if after else at + 1
            if stem(other) != neighbour or not 0 <= slot < len(said) or len(said[slot]) < 4:
                continue
            if stem(said[slot]) not in own and said[slot] not in STOP and not ASSERTS.fullmatch(said[slot]):
                return True
    return False
