"""Options that a response names by the words that tell them apart, in any order and form ("the femur is fractured" for "fracture of the
femur")."""

from __future__ import annotations

import re

from eval_harness.answer_reading.asserted.around import (
    AGREES,
    ASSERTS,
    DEFINES_AFTER,
    LEFT_SO,
    ONLY_NEAR,
    PART_OF,
    SHORT,
    TOPIC_AFTER,
    WEIGHED,
    in_condition,
    is_moved,
    is_of_another,
    normal_part,
    said_elsewhere,
    seen_after,
    under_condition,
    unharmed,
)
from eval_harness.answer_reading.letters import Found, most
from eval_harness.answer_reading.mentions import (
    COMPOUND,
    PROSE,
    both_named,
    part_of_both,
)
from eval_harness.answer_reading.names import WORD
from eval_harness.answer_reading.options import DENIED, STOP, OptionTexts, stem
from eval_harness.answer_reading.polarity import clause_start, is_denied, negated_before
from eval_harness.answer_reading.words import phrase, says_stems

_THAN_A = re.compile(r"\bthan (?:an? |the )?\w+ $", re.IGNORECASE)
_WHICH_IS = re.compile(r", which (?:is|are) an? [^.,;\n]+", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_DEFINITION = phrase(
    "is are refer refers",
    r"\b(?:is|are) (?:\w+ly )?(?:used|defined|a (?:type|kind|form|condition|disease|procedure|device|rare|common)|an? \w+ (?:that"
    r"|which)|the (?:leading|main|most common) (?:cause|form|type)|caused by)\b|\brefers? to\b",
)


def distinguishing_words(text: str, texts: OptionTexts, multiple: bool, question: str | None = None) -> Found:
    """The one option whose words are all said, or whose distinguishing words (those no other option has) are, with none that tell another.

    Words count by their stems, in any order: "the femur is fractured" for "fracture of the femur" against "dislocation of the hip". Of
    three or more distinguishing words one may be missing, of eight or more a quarter. A response of a few words that are all one option's
    names it, if another option has not all of them ("thyroid" for "thyroid gland").
    """
    if len(text) > PROSE or not says_stems(text, texts.beginnings):
        return None
    if (named := _fragment(text, texts)) is not None:
        return (named,)
    if _DEFINITION.search(text):
        text = " ".join(part for part in _SENTENCES.split(_WHICH_IS.sub("", text)) if not _DEFINITION.search(part))
    known = texts.known
    said: set[str] = set()
    asserted: set[str] = set()
    near: set[str] = set()
    short = len(text.split()) <= SHORT
    left_to_look = most(text)
    both = () if multiple else both_named(text)
    together: dict[str, set[int]] = {}
    for match in WORD.finditer(text):
        word = stem(match[0].lower())
        if word not in known:
            continue
        left_to_look -= 1
        if left_to_look < 0:
            return None
        if COMPOUND.search(text, max(0, match.start() - 8), match.start()) or in_condition(text, match.start()):
            continue
        if is_denied(text, match.start(), match.end()):
            if negated_before(text, match.start()):
                said.add(DENIED + word)
                asserted.add(DENIED + word)
            continue
        clause = clause_start(text, match.start()), match.start()
        before = text[slice(*clause)]
        if before[-4:].lower() in ("non-", "non ") and "non" not in known:
            return None
        if WEIGHED.search(text, *clause):
            continue
        if (word == "right" and AGREES.search(before)) or (word == "left" and LEFT_SO.match(text, match.end())):
            continue
        if said_elsewhere(text, match.start(), match.end(), question):
            continue
        if word.isdigit() and _THAN_A.search(before):
            continue
        if normal_part(text, match.start(), match.end(), before) and "normal" in texts.index:
            continue
        if TOPIC_AFTER.match(text, match.end()) or under_condition(text, match.start(), match.end(), question):
            continue
        if is_of_another(before, texts, question):
            continue
        if unharmed(text, match.end()):
            continue
        said.add(word)
        if both:
            together.setdefault(word, set()).add(part_of_both(match.start(), match.end(), both))
        seen = ASSERTS.search(text, *clause) or seen_after(text, match.end())
        beside = ONLY_NEAR.search(text, *clause) or PART_OF.search(before) or is_moved(before, question)
        if beside and "be seen in" not in beside[0].lower():
            near.add(word)
        elif not beside and (seen or (short and not DEFINES_AFTER.match(text, match.end()))):
            asserted.add(word)
    whole = [option for option, stems in enumerate(texts.stems) if stems and stems <= said]
    whole = whole or [option for option, stems in enumerate(texts.heads) if stems and stems <= said]
    if _BOTH_SIDES.search(text) is None:
        whole = [option for option in whole if "both" not in texts.words[option]]
    whole = [option for option in whole if not any(texts.stems[option] < texts.stems[other] for other in whole)]
    if len(whole) > 1:
        return ()
    hinted = {option for option, words in enumerate(texts.distinguishing) if words & said}
    candidates = whole or [
        option
        for option in hinted
        if len(texts.distinguishing[option] & said) >= max(2, _enough(len(texts.distinguishing[option])))
        or texts.distinguishing[option] <= said
    ]
    if len(candidates) != 1 or hinted - set(candidates):
        return () if len(hinted) > 1 else None
    option = candidates[0]
    if both:  # its words stand in one part only
        parts = [together[word] for word in texts.stems[option] if together.get(word) in ({1}, {2})]
        if parts and all(part == parts[0] for part in parts):
            return ()
    if _says_twice(texts.words[option]):
        return None
    if not whole and _is_replaced(text, option, texts.stems[option] - said, texts):
        return None
    if texts.stems[option] & (near - asserted):
        return None
    return (option,) if texts.stems[option] & asserted else None


def _says_twice(option: tuple[str, ...]) -> bool:
    """Whether an option says a word twice ("the first grows and the second grows"), which a response may say of one thing only."""
    said = [word for word in option if word not in STOP]
    return len(set(said)) < len(said)


_BOTH_SIDES = phrase("both bilateral bilaterally two each all either", r"\b(?:both|bilateral\w*|two|each|all|either)\b")


def _enough(count: int) -> int:
    """How many of so many distinguishing words have to be said."""
    return count - max(1, count // 4)


def _fragment(text: str, texts: OptionTexts) -> int | None:
    if len(text) > 60:
        return None
    begins = frame.end() if (frame := _FRAME.match(text)) else 0
    said = {stem(word[0].lower()) for word in WORD.finditer(text, begins) if word[0].lower() not in _FILLERS}
    if not said or len(said) > 4:
        return None
    options = [option for option, stems in enumerate(texts.stems) if said <= stems]
    if len(options) != 1:
        return None
    missing = [word for word in texts.words[options[0]] if stem(word) not in said]
    head = next(iter(_HEAD.split(" ".join(texts.words[options[0]]), maxsplit=1))).split(" ")[-1]
    shared = stem(head) in texts.stems[options[0]] and all(stem(head) in stems for stems in texts.stems)
    if (head in missing and head not in _GENERIC_HEADS and not shared) or not _QUALIFIERS.isdisjoint(missing):
        return None
    return options[0]


_FRAME = re.compile(
    r"\W*(?:(?:the |my )?(?:(?:final|correct|best|right|likely|most) )*(?:answer|choice|diagnosis)(?:\s*:| is)"
    r"|(?:the|this) (?:[\w-]+ )?(?:image|picture|scan|x-?ray|radiograph|film|ct|mri) (?:shows|depicts|reveals|demonstrates)"
    r"|there (?:is|are))\s",
    re.IGNORECASE,
)
"""What may stand before a few words that are all one option's ("The diagnosis is pneumonia" for "Lobar pneumonia")."""
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
            if stem(said[slot]) not in own and said[slot] not in STOP and not ASSERTS.pattern.fullmatch(said[slot]):
                return True
    return False
