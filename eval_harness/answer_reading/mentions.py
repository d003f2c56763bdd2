"""Options named by their text: found, grouped, and told apart by whether the response means them.

Functions return positions, None where they find nothing. See also: letters by themselves (`letters.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.letters import CLOSE, CLOSED, OPEN, Found, is_named_thing, most
from eval_harness.answer_reading.options import OptionTexts, named_option, stem
from eval_harness.answer_reading.plain_text import says
from eval_harness.answer_reading.polarity import clause_before, denied_after, is_denied

LABEL_GAP = re.compile(r"[.:)\s,–—-]{0,4}[\"'(]?")
_LABEL_BEFORE = re.compile(rf"(?:^|[^\w']){OPEN}([A-Za-z])(?:{CLOSE}\s*[.:)\]\-–=]+|{CLOSED})\s*{OPEN}$")
_JOIN = re.compile(
    r"\s*(?:,|\band\b|\bor\b|\bnor\b|/|\bvs\.?|\bversus\b|,\s*(?:and|or|nor)\b|\band/or\b)\s*(?:(?:a|an|the|both|either)\s+)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Option texts in a row (text[start:end]; `start` takes in the letter of a label) and their options; `labelled`: with
    their own letters; `crossed`: with the letter of another option ("A. <text of B>", "<text of B> (C)")."""

    options: tuple[int, ...]
    start: int
    end: int
    labelled: bool
    crossed: bool = False


@lru_cache(maxsize=16)
def text_mentions(text: str, texts: OptionTexts, start: int = 0, stop: int | None = None) -> tuple[Mention, ...]:
    """All option texts in text[start:stop], those joined by commas, "and", "or", "vs" as one mention."""
    if texts.pattern is None or not says(text, texts.hints):
        return ()
    mentions: list[Mention] = []
    for match in texts.pattern.finditer(text, start, len(text) if stop is None else stop):
        option = named_option(match[0], texts)
        if option is None or (
            COMPOUND.search(text, max(start, match.start() - 8), match.start())
            and not (mentions and mentions[-1].end == match.start() - 1)
        ):
            continue
        edge = max(start - 1, match.start() - 14, 0)
        label = _LABEL_BEFORE.search(text[edge : match.start()])
        if label is not None and is_named_thing(text, edge + label.start(1)):  # "angle A = 45°"
            label = None
        labelled = label is not None and LETTERS.find(label[1].upper()) == option
        crossed = not labelled and _is_crossed(text, label, match.end(), option, len(texts.words))
        begin = edge + label.start(1) if label is not None and labelled else match.start()
        if mentions and not labelled and not crossed:
            last = mentions[-1]
            alike = texts.negative.isdisjoint((*last.options, option))
            if alike and not last.labelled and _JOIN.fullmatch(text, last.end, begin):
                mentions[-1] = Mention((*last.options, option), last.start, match.end(), False)
                continue
        mentions.append(Mention((option,), begin, match.end(), labelled, crossed))
    return tuple(mentions)


COMPOUND = re.compile(r"[A-Z]{2,}[/-]$")
"""What makes the next word part of another name ("PET/CT")."""
_LETTER_AFTER = re.compile(r"\s*[(\[](?:[Oo]ption |[Cc]hoice |[Aa]nswer )?([A-Z])[)\]]")


def _is_crossed(text: str, label: re.Match[str] | None, end: int, option: int, count: int) -> bool:
    """Whether an option's text carries the letter of another, before it ("A. <text of B>") or after it in brackets."""
    before = LETTERS.find(label[1]) if label is not None else -1
    after = _LETTER_AFTER.match(text, end)
    place = LETTERS.find(after[1]) if after else -1
    return (0 <= before < count and before != option) or (0 <= place < count and place != option)


def lists_options(text: str, texts: OptionTexts) -> bool:
    """Whether the response names two or more options as items of a list, each with a letter or on a line of its own; or has a list of
    all letters, whatever stands beside them."""
    items = {
        mention.options
        for mention in text_mentions(text, texts)
        if mention.labelled or mention.crossed or _ITEM.search(text[max(0, mention.start - 8) : mention.start])
    }
    return len(items) > 1 or (len(texts.words) > 3 and _all_letters(text, len(texts.words)))


def _all_letters(text: str, count: int) -> bool:
    return {label[1].upper() for label in _LABEL.finditer(text)}.issuperset(LETTERS[:count])


_LABEL = re.compile(r"\(\s?([A-Za-z])\s?\)")


def is_crossed(text: str, texts: OptionTexts) -> bool:
    """Whether any option's text stands with the letter of another: then nobody can say which of the two is meant."""
    return any(mention.crossed for mention in text_mentions(text, texts))


def labelled_mentions(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """Options named by letter and text together ("C. rib fracture"): the one that is meant, or the ones for multiple choice.

    A list of all options with a verdict on each counts by the verdicts.
    """
    if is_crossed(text, texts):
        return None
    meant, denied = _labelled(text, texts)
    if len(meant) + len(denied) == 1 and _only_lists(text, texts):
        return None
    alive = [option for option in meant if option not in denied]
    right = [option for option in alive if meant[option]]
    if right and len(meant) + len(denied) > len(right):
        alive = right
    return tuple(alive) if len(alive) == 1 or (multiple and 0 < len(alive) < count) else None


def _only_lists(text: str, texts: OptionTexts) -> bool:
    """Whether options are named only in a list of all of them; some of their texts may not have been recognized."""
    count, mentions = len(texts.words), text_mentions(text, texts)
    named = {mention.options for mention in mentions}
    if count < 2 or not mentions or not all(mention.labelled for mention in mentions):
        return False
    return len(named) == count or (len(named) == 1 and count > 3 and _all_letters(text, count))


def labelled_verdicts(text: str, texts: OptionTexts) -> Found:
    """Of options named by letter and text with a verdict each, those that are called right, where another is called wrong."""
    meant, denied = _labelled(text, texts)
    right = tuple(option for option in meant if meant[option] and option not in denied)
    return right if right and denied else None


def labelled_verdicts_end(text: str, texts: OptionTexts) -> int:
    """Where the last option named by letter and text together ends, 0 where there is none."""
    return max((mention.end for mention in text_mentions(text, texts) if mention.labelled), default=0)


def says_all_words(text: str, option: int, texts: OptionTexts) -> bool:
    """Whether every word of an option's own that counts is said somewhere in the response."""
    wanted = {stem(word) for word in texts.words[option] if len(word) > 2}
    return len(wanted) > 1 and wanted <= {stem(word.lower()) for word in WORD.findall(text[:PROSE])}


def _labelled(text: str, texts: OptionTexts) -> tuple[dict[int, bool], set[int]]:
    """The labelled options that are meant (with: called right?), and those denied."""
    meant: dict[int, bool] = {}
    denied: set[int] = set()
    own: list[tuple[int, int]] = []
    for mention in text_mentions(text, texts)[-most(text) :]:
        own.append((mention.start, mention.end))
        if not mention.labelled:
            continue
        option = mention.options[0]
        closing = _CLOSING_VERDICT.search(_rest_of_item(text, mention))
        if closing is not None:
            denied.add(option) if closing["wrong"] else meant.__setitem__(option, True)
            continue
        if is_denied(text, mention.start, mention.end, tuple(own[-6:-1])):
            denied.add(option)
        else:
            meant.setdefault(option, False)
    return meant, denied


_CLOSING_VERDICT = re.compile(
    r"[.;:,–—-]\s*\W*(?:(?:so |thus |therefore )?(?:this|it) is (?:the )?)?(?:(?P<wrong>(?:very |less |highly )?unlikely|incorrect|wrong"
    r"|not (?:correct|likely|consistent|supported)|ruled out|excluded)|correct|most (?:likely|consistent)|best (?:fit|match|answer))\W*$",
    re.IGNORECASE,
)


def _rest_of_item(text: str, mention: Mention) -> str:
    """The rest of the line after an option that begins it; empty where it stands within a line."""
    begin = text.rfind("\n", max(0, mention.start - 12), mention.start) + 1
    if (begin == 0 and mention.start > 12) or _REST.search(text, begin, mention.start):
        return ""
    end = text.find("\n", mention.end, mention.end + 600)
    return text[mention.end : end] if end >= 0 else text[mention.end : mention.end + 600]


def lists_itself(text: str, texts: OptionTexts) -> bool:
    """Whether the response lists options that are letters with their letters, in the order asked ("(A) D", "(B) C")."""
    found = {
        label[1]: label[2].lower()
        for label in _LETTER_LIST.finditer(text)
        if LETTERS.index(label[1]) < len(texts.words)
    }
    return len(found) > 1 and all(texts.lone.get(said) == LETTERS.index(letter) for letter, said in found.items())


_LETTER_LIST = re.compile(r"(?<![^\W_])\(?([A-Z])[).:]\s*([A-Z])(?![^\W_])")


_LABEL_HERE = re.compile(r"[^\w\n]{0,20}\s{0,20}[^\w\n]{0,20}(?:[^\W\d_]{2,20} )?[^\w\n]{0,8}[A-Za-z](?![^\W_])")


def labelled_options(text: str, start: int, texts: OptionTexts, apart: int = 80) -> tuple[int, ...]:
    """The options of a list that begins at text[start], one label and text after the other, up to the first line without one;
    `apart`: how many characters may stand between two of them."""
    found: list[int] = []
    end = start
    if _LABEL_HERE.match(text, start) is None:
        return ()
    for mention in text_mentions(text, texts, start, min(len(text), start + 3000)):
        gap = text[end : mention.start]
        between = gap.strip(" \t\n-•*.,;?([{\"'")
        if not mention.labelled or "\n" in between or len(between) > (apart if found else 0):
            break
        found.append(mention.options[0])
        end = mention.end
    return tuple(dict.fromkeys(found))


def denies_own_text(text: str, start: int, place: int, texts: OptionTexts) -> bool:
    """Whether the option's own text stands at text[start] and is then denied ("B: stroke is not supported")."""
    gap = LABEL_GAP.match(text, start) if texts.pattern is not None else None
    inner = texts.pattern.match(text, gap.end()) if gap and texts.pattern else None
    if inner is None or named_option(inner[0], texts) != place:
        return False
    return denied_after(text, inner.end())


ASSERTS = re.compile(
    r"\b(?:is|are|was|were|be|shows?|showing|shown|reveals?|depicts?|displays?|demonstrates?|illustrates?|represents?|indicates?"
    r"|indicative of|suggests?"
    r"|suggestive of|consistent with|compatible with|appears?|looks? like|likely|probably|see|evidence of|presence of|diagnos\w+"
    r"|corresponds? to"
    r"|characteristic of|typical of|contains?|has|have|there|matches|choose|select|think|believe|guess"
    r"|leaning towards?|involv(?:es|ing)|affects|belongs? to|will|with|visible|highlights?"
    r"|means?|expect(?:s|ed)?|count(?:ed)?|identif\w+ as|had|favou?rs?|fits?|lies|located|points? to|leaves|leaving)\b",
    re.IGNORECASE,
)
ONLY_NEAR = re.compile(
    r"\b(?:adjacent to|next to|near|close to|behind|in front of|above|below|beneath|beside|surround\w*|around|anterior to|posterior to"
    r"|lateral to|medial to|superior to|inferior to|abut\w+|compress\w+|supplies|drains?|mimic\w*|confused with"
    r"|treated (?:for|with)|history of"
    r"|risk (?:of|for)|screen\w* for"
    r"|connected to|attached to|towards?|away from"
    r"|(?:can|may|might|could)(?: also)? be (?:\w+ )?(?:associated with|caused by|related to|due to|seen in)"
    r"|possib\w+"
    r"|(?:options|choices|possibilities|candidates|alternatives)\b(?:\s+\w+){0,3}?\s*(?:are|include|:"
    r"|were))\s*(?:\w+\s+){0,1}?(?:the\s+|a\s+|an\s+)?(?:\w+\s+and\s+)?(?:(?:the|left|right)\s+)*$",
    re.IGNORECASE,
)
WEIGHED = re.compile(
    r"\b(?:whether|between|among|considering|question is|to (?:determine|decide|distinguish))\b", re.IGNORECASE
)
SEEN_AFTER = re.compile(
    r"(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,60}?\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?(?:seen|visible|present|shown|noted"
    r"|evident|demonstrated|observed"
    r"|depicted|displayed"
    r"|illustrated|highlighted|marked|affected|involved|correct|right|(?:the )?(?:correct|best|most|right|answer)|likely)\b"
    r"|(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,40}?\b(?:corresponds?|matche?s?|aligns?) (?:best |closely |most \w+ )?(?:to|with|the)\b",
    re.IGNORECASE,
)
DEFINES_AFTER = re.compile(
    r"\s+(?:is|are|was|were|refers?|means?|describes?|can|may|occurs?|usually|typically|often|would|could|uses|requires|involves)\b",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"\W*(?:(?:therefore|thus|hence|so|overall|in conclusion|in summary)\b,?\s*)?(?:(?:a|an|the)\s+)?", re.IGNORECASE
)
_ENDS = re.compile(r"\W*(?:$|[.,;:!?\n])")
_RANGE_BEFORE = re.compile(r"([^\W\d_]+)\s*(?:\bto\b|-|\bor\b|/|\band\b|&)\s*(?:(?:a|an|the)\s+)?$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:\d|\b[ivxIVX]+)$")
_RANGE_AFTER = re.compile(r"\s*(?:\bto\b|\bor\b|[-–/])\s*(?:\d|[IVX]+\b)")
AGREES = re.compile(r"\b(?:that is|you(?:'re| are)|all)\s+$", re.IGNORECASE)
_CONCLUDES = re.compile(
    r"\b(?:most likely|most probabl[ey]|therefore|thus|hence|in conclusion|overall|best (?:fits|matches|described|option)"
    r"|most consistent|final|diagnosis is|must be|has to be|leaves|leaving)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"\d+(?:\.\d+)+(?![^\W_])|[^\W_]+")
PROSE = 1000
"""Characters up to which words are put together to an option; longer prose names too many things."""
SHORT = 8
"""Words up to which a response is an answer rather than prose: whatever option it names, it means."""


def asserted_texts(text: str, texts: OptionTexts, multiple: bool) -> Found:
    """Options named by their text alone, where the sentence says that they are there; a definition or a neighbour says nothing.

    Of several the one that the last sentence concludes counts. Numbers and formulas are read only of a response without workings, or
    of a last sentence without any other number."""
    mentions = text_mentions(text, texts)
    if len(mentions) > most(text):
        return None
    if _only_lists(text, texts):
        return ()
    meant: dict[int, None] = {}
    concluded: dict[int, None] = {}
    last: dict[int, None] = {}
    items: set[int] = set()
    short = len(text) < 120 and len(text.split()) <= SHORT
    final = _last_sentence(text)
    for mention in mentions:
        if mention.crossed or (_is_range(text, mention, texts) and not is_denied(text, mention.start, mention.end)):
            return ()
        if not texts.numeric.isdisjoint(mention.options) and not _only_number(text, mention, final):
            continue
        if not texts.common.isdisjoint(mention.options) and _ITEM.search(
            text[max(0, mention.start - 8) : mention.start]
        ):
            items.update(mention.options)
        if _is_meant(text, mention, texts, short):
            meant.update(dict.fromkeys(mention.options))
            before = clause_before(text, mention.start)
            if _CONCLUDES.search(before):
                concluded.update(dict.fromkeys(mention.options))
            if mention.start >= final > 0 and _CONCLUDES_LAST.search(before):
                last.update(dict.fromkeys(mention.options))
    alive = tuple(meant)
    if alive and not items <= meant.keys():
        return ()
    if len(alive) > 1 and not multiple:
        alive = tuple(last) if len(last) == 1 else tuple(concluded) or alive
    if len(alive) == 1 or (multiple and 0 < len(alive) < len(texts.words)):
        return alive
    return () if alive else None


_ITEM = re.compile(r"(?:^|\n)\W*(?:\d{1,2}\W{1,3})?$")
"""Before a word that begins an item of a list of statements ("1. False", "2. True")."""
_CONCLUDES_LAST = re.compile(
    r"\b(?:likely|suggests?|indicates?|belongs? to|consistent with|therefore|thus|hence|so|conclu\w+|diagnosis|appears? to be"
    r"|points? to)\b",
    re.IGNORECASE,
)
_NOT_BUT = re.compile(
    r"\bnot\b[^.;\n]{1,100}?,?\s+but\s+(?:rather\s+)?(?:(?:in|on|at|of|from|is|it is|a|an|the)\s+)*$", re.IGNORECASE
)
"""What a statement puts in place of what it denies ("not in the frontal but in the parietal lobe")."""
_RESULT_IS = re.compile(r"\b(?:is|was|are|be|equals)\s+(?:about |approximately |exactly )?[^\w\s]?$", re.IGNORECASE)
"""Before the number that ends a response ("With 200 minutes a month the saving would be 52.61.")."""
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def _last_sentence(text: str) -> int:
    """Where the last sentence begins."""
    start = 0
    for match in _SENTENCE_END.finditer(text.rstrip(), max(0, len(text) - 600)):
        start = match.end()
    return start


_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|\n+(?=\S)|,? (?:so|therefore|thus|hence|giving)\b", re.IGNORECASE)


_REST = re.compile(r"\w")


def _only_number(text: str, mention: Mention, final: int) -> bool:
    """Whether a number is the only one that a response without workings names, or the only one of its last sentence."""
    own = set(_ANY_NUMBER.findall(text[mention.start : mention.end]))
    if (
        len(text) <= PROSE
        and text[: mention.start].rstrip(" $\n").endswith("=")
        and not _REST.search(text, mention.end)
    ):
        return True  # the result of a calculation that ends the response
    if (
        len(text) <= PROSE
        and _RESULT_IS.search(text[max(0, mention.start - 20) : mention.start])
        and not _REST.search(text, mention.end)
    ):
        return True
    start = 0 if len(text) <= PROSE and "=" not in text and own.issuperset(_ANY_NUMBER.findall(text)) else final
    if mention.start < start or not own.issuperset(_ANY_NUMBER.findall(text[start:])):
        return False
    signs = text.count("=", start)
    return signs == 0 or (
        signs == 1 and text[: mention.start].rstrip().endswith("=") and not _REST.search(text, mention.end)
    )


def _is_range(text: str, mention: Mention, texts: OptionTexts) -> bool:
    """Whether a word that tells another option is joined before ("mild to moderate stenosis")."""
    numbered = len(mention.options) == 1 and _NUMBERED.search(text, mention.start, mention.end)
    if numbered and _RANGE_AFTER.match(text, mention.end):
        return True
    before = _RANGE_BEFORE.search(text[max(0, mention.start - 30) : mention.start])
    if before is None:
        return False
    word = stem(before[1].lower())
    return any(word in words for option, words in enumerate(texts.telling) if option not in mention.options)


_WHOLE_IMAGE = (
    r"(?:image|x-?ray|radiograph|scan|study|film|fundus|eye|tissue|exam\w*|appearance|chest|finding|result|mri|ct"
    r"|it|this|that)s?"
)
_NORMAL_PART = re.compile(
    rf"\s+(?!(?:{_WHOLE_IMAGE}|and|or|but|because|with|as|in|on|for|given|due|since)\b)[a-z]", re.IGNORECASE
)
_PART_IS_NORMAL = re.compile(
    rf"\b(?!{_WHOLE_IMAGE}\b)\w+\s+(?:is|are|appears?|looks?|remains?)\s+(?:to be\s+)?(?:\w+ly\s+|within\s+)?$",
    re.IGNORECASE,
)
"""Where "normal" is said of a part and not of the image ("a normal heart", "the heart size is normal")."""
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CJK_SAYS = re.compile(
    r"(?:显示|显示为|提示|表现为|考虑为?|诊断为?|符合|存在|可见|属于|是|为|有|选|答案|^)[了的\s::\"“]*$"
)
_CJK_DENIES = re.compile(r"没有|无|不|未|排除|非|否")


def _is_meant(text: str, mention: Mention, texts: OptionTexts, short: bool) -> bool:
    before = clause_before(text, mention.start)
    lead = _LEADS.fullmatch(before) is not None
    if any(option in texts.common for option in mention.options):
        return lead and mention.start < 8 and _ENDS.match(text, mention.end) is not None
    if text[mention.start : mention.end].lower() == "normal" and (
        _NORMAL_PART.match(text, mention.end) or _PART_IS_NORMAL.search(before)
    ):
        return False
    if text[mention.start : mention.end].lower() == "right" and AGREES.search(before):
        return False
    if _CJK.search(text, mention.start, mention.end):
        before = before[-16:].rsplit(",", 1)[-1]
        return _CJK_SAYS.search(before) is not None and _CJK_DENIES.search(before) is None
    negative = texts.negative.issuperset(mention.options)
    if not negative and is_denied(text, mention.start, mention.end):
        return False
    if ONLY_NEAR.search(before) or WEIGHED.search(before):
        return False
    if UNHARMED.match(text, mention.end):  # "the right kidney appears normal"
        return False
    if (
        SEEN_AFTER.match(text, mention.end)
        or mention.labelled
        or ASSERTS.search(before)
        or before.rstrip().endswith("=")
        or _NOT_BUT.search(text[max(0, mention.start - 160) : mention.start])
    ):
        return True
    return (lead or short) and not DEFINES_AFTER.match(text, mention.end)


UNHARMED = re.compile(
    r"[^.;\n,]{0,40}?\b(?:is|are|appears?|remains?|looks?)\s+(?:\w+\s+)?(?:intact|preserved|unremarkable|spared|healthy|normal|clear)\b",
    re.IGNORECASE,
)
