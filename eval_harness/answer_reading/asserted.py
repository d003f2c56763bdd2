"""Options that a response means by their text: their own words where the sentence says that they are there, or, in any order and form,
the words that tell them apart ("the femur is fractured" for "fracture of the femur").

Functions return positions, None where they find nothing, () for more than one option. See also: where texts stand (`mentions.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.letters import Found, most
from eval_harness.answer_reading.mentions import (
    COMPOUND,
    ITEM,
    PROSE,
    REST,
    Mention,
    both_named,
    explained_from,
    list_of_all,
    only_lists,
    part_of_both,
    text_mentions,
)
from eval_harness.answer_reading.names import WORD
from eval_harness.answer_reading.options import DENIED, STOP, OptionTexts, stem
from eval_harness.answer_reading.polarity import clause_start, is_denied, negated_before, sentence_before
from eval_harness.answer_reading.words import asks, beginnings, phrase, says, says_between, says_stems, words_in

ASSERTS = phrase(
    "is are was were be show shows showing shown reveal depict display demonstrate illustrate represent indicate suggest consistent"
    " compatible appear look looks likely probably see evidence presence diagnosis correspond characteristic typical contain has have"
    " there matches choose select think believe guess leaning involve affects belong will with visible highlight mean expect count"
    " identify had favor favour fit fits lies located point leaves leaving",
    r"\b(?:is|are|was|were|be|shows?|showing|shown|reveals?|depicts?|displays?|demonstrates?|illustrates?|represents?|indicates?"
    r"|indicative of|suggests?"
    r"|suggestive of|consistent with|compatible with|appears?|looks? like|likely|probably|see|evidence of|presence of|diagnos\w+"
    r"|corresponds? to"
    r"|characteristic of|typical of|contains?|has|have|there|matches|choose|select|think|believe|guess"
    r"|leaning towards?|involv(?:es|ing)|affects|belongs? to|will|with|visible|highlights?"
    r"|means?|expect(?:s|ed)?|count(?:ed)?|identif\w+ as|had|favou?rs?|fits?|lies|located|points? to|leaves|leaving)\b",
)
ONLY_NEAR = phrase(
    "adjacent next near close behind in above below beneath beside surround around anterior posterior lateral medial superior inferior"
    " abut compress supplies drain drains mimic confused treated history risk screen connected attached toward away can may might could"
    " possible options choices candidates alternatives compared recovered treatment ordered confuse distal proximal on equal identical"
    " combined sequela complication symptoms signs test to derives derived patients people persons individuals"
    " children those rest remainder known knowledge information neben nahe hinter vor unter über junto cerca à près au",
    r"\b(?:adjacent to|next to|near|close to|behind|in front of|above|below|beneath|beside|surround\w*|around|anterior to|posterior to"
    r"|lateral to|medial to|superior to|inferior to|abut\w+|compress\w+|supplies|drains?|mimic\w*|confused with"
    r"|treated (?:for|with)|history of"
    r"|compared (?:to|with)|risk (?:of|for)|screen\w* for"
    r"|recovered from|treat\w+ (?:of choice )?(?:of|for)|ordered for|confuse \w+ (?:\w+ )?with|connected to|attached to|towards?|away from"
    r"|distal to|proximal to|on top of|(?:equal|identical) to that of|combined with|sequel\w+ (?:of|to)|complications? of"
    r"|deriv\w+ from(?: an?)?|(?:patients|people|persons|individuals|children|those) with"
    r"|(?:rest|remainder)(?: of the [\w-]+)? (?:is|are|shows|appears)"
    r"|known|(?:knowledge|information) (?:about|of|on)"
    r"|symptoms of|test(?:s|ed|ing)? for|to (?:detect|diagnose|exclude|confirm|rule out|prevent|treat)"
    r"|neben|nahe|hinter|unter(?:halb)?|über|oberhalb|vor|junto al?|cerca del?|à côté|près|au-dess\w+"
    r"|(?:can|may|might|could)(?: also)? be (?:\w+ )?(?:associated with|caused by|related to|due to|seen in)"
    r"|possib\w+"
    r"|(?:options|choices|possibilities|candidates|alternatives)\b(?:\s+\w+){0,3}?\s*(?:are|include|:"
    r"|were))\s*(?:\w+\s+){0,1}?(?:the\s+|a\s+|an\s+)?(?:\w+\s+and\s+)?(?:(?:the|left|right)\s+)*$",
)
WEIGHED = phrase(
    "whether between among considering question to option choice statement",
    r"\b(?:whether|between(?! (?:points? )?(?-i:[A-Z])\b)|among|considering|question is|to (?:determine|decide|distinguish)"
    r"|(?:option|choice|statement) \W?[A-Z]\W? (?:suggests|states|says|claims|proposes|mentions|describes|implies))\b",
)
_SEEN_AFTER = re.compile(
    r"(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,60}?\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?(?:seen|visible|present|shown|noted"
    r"|evident|demonstrated|observed"
    r"|depicted|displayed"
    r"|illustrated|highlighted|marked|affected|involved|correct|right|(?:the )?(?:correct|best|most|right|answer)|likely)\b"
    r"|(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,40}?\b(?:corresponds?|matche?s?|aligns?) (?:best |closely |most \w+ )?(?:to|with|the)\b",
    re.IGNORECASE,
)
_IS = beginnings("is are can was were corresponds matches aligns")


def seen_after(text: str, end: int) -> bool:
    """Whether the clause goes on to say that the words that end at text[end] are seen, or right."""
    return says_between(text, _IS, end, end + 80) and _SEEN_AFTER.match(text, end) is not None


DEFINES_AFTER = re.compile(
    r"\s+(?:is|are|was|were|refers?|means?|describes?|can|may|occurs?|arises?|originates?|usually|typically|often|would|could|uses|requires|involves)\b",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"\W*(?:(?:therefore|thus|hence|so|overall|in conclusion|in summary)\b,?\s*)?(?:(?:a|an|the)\s+)?", re.IGNORECASE
)
_ENDS = re.compile(r"\W*(?:$|[.,;:!?\n])")
_ENDS_CLAUSE = re.compile(rf"{_ENDS.pattern}|\s+and\b", re.IGNORECASE)
_RANGE_BEFORE = re.compile(r"([^\W\d_]+)\s*(?:\bto\b|-|\bor\b|/|\band\b|&)\s*(?:(?:a|an|the)\s+)?$", re.IGNORECASE)
_JOINS = ("to", "-", "or", "/", "and", "&", "a", "an", "the")
"""What `_RANGE_BEFORE` may end with."""
_NUMBERED = re.compile(r"(?:\d|\b[ivxIVX]+)$")
_RANGE_AFTER = re.compile(r"\s*(?:\bto\b|\bor\b|[-–/])\s*(?:\d|[IVX]+\b)")
AGREES = re.compile(r"\b(?:that is|you(?:'re| are)|all)\s+$", re.IGNORECASE)
_LEFT_SO = re.compile(r"\s+(?:un\w+ed|alone|behind|out|over|in place)\b", re.IGNORECASE)
"""After "left" where it is no side ("was left untreated")."""
_CONCLUDES = phrase(
    "most therefore thus hence in overall best final diagnosis must has leaves leaving",
    r"\b(?:most likely|most probabl[ey]|therefore|thus|hence|in conclusion|overall|best (?:fits|matches|described|option)"
    r"|most consistent|final|diagnosis is|must be|has to be|leaves|leaving)\b",
)
SHORT = 8
"""Words up to which a response is an answer rather than prose, its options' words not counted: whatever option it names, it means."""


def asserted_texts(text: str, texts: OptionTexts, multiple: bool, question: str | None = None) -> Found:
    """Options named by their text alone, where the sentence says that they are there; a definition or a neighbour says nothing.

    Of several the one that the last sentence concludes counts. Numbers and formulas are read only of a response without workings, or
    of a last sentence without any other number."""
    found = text_mentions(text, texts)
    mentions = tuple(
        mention
        for mention in found
        if not in_condition(text, mention.start) and not under_condition(text, mention.start, mention.end, question)
    )
    if not mentions or len(found) > most(text):
        return None
    if only_lists(text, texts):
        return ()
    meant: dict[int, None] = {}
    concluded: dict[int, None] = {}
    last: dict[int, None] = {}
    items: set[int] = set()
    led: set[int] = set()
    spaces = sum(text.count(" ", mention.start, mention.end) + 1 for mention in mentions[:2])
    short = len(text) < 120 and len(text.split()) - spaces < SHORT
    first = end.start() if (end := _SENTENCE_END.search(text)) else len(text)
    answered = question is not None and _answers(text, mentions, first, question)
    final = _last_sentence(text)
    both = () if multiple else both_named(text)
    together, either = False, set[int]()
    listed = (-1, -1) if multiple else list_of_all(text, texts)
    explained = explained_from(text, texts)
    for mention in mentions:
        if listed[0] <= mention.start < listed[1]:
            continue
        if both and part_of_both(mention.start, mention.end, both):
            together = True
            continue
        if len(mention.options) > 1 and not is_denied(text, mention.start, mention.end):
            either.update(mention.options)
        if mention.crossed or (_is_range(text, mention, texts) and not is_denied(text, mention.start, mention.end)):
            return ()
        if not texts.numeric.isdisjoint(mention.options) and (
            not _only_number(text, mention, final) or _counts_another(text, mention, question)
        ):
            continue
        if not texts.common.isdisjoint(mention.options) and ITEM.search(
            text[max(0, mention.start - 8) : mention.start]
        ):
            items.update(mention.options)
        edge = max(0, mention.start - 120)
        if text.count(",", edge, mention.start) > 1 and _ENUMERATED.search(text, edge, mention.start):
            continue
        alone = answered and mention.start < first and not _THAN.search(text, mention.start - 9, mention.start)
        if _is_meant(text, mention, texts, short, alone, question):
            meant.update(dict.fromkeys(mention.options))
            if mention.start < explained:
                led.update(mention.options)
            clause = clause_start(text, mention.start), mention.start
            if (
                alone
                or _CONCLUDES.search(text, *clause)
                or (mention.end <= first and _PREDICATE.search(text, *clause) and _ENDS_CLAUSE.match(text, mention.end))
            ):
                concluded.update(dict.fromkeys(mention.options))
            if mention.start >= final > 0 and _CONCLUDES_LAST.search(text, *clause):
                last.update(dict.fromkeys(mention.options))
    alive = tuple(meant)
    if alive and (
        not items <= meant.keys() or (not multiple and either and either.isdisjoint(alive) and not concluded)
    ):
        return ()
    if len(alive) > 1 and not multiple:
        alive = tuple(last) if len(last) == 1 else tuple(concluded) or alive
    if len(alive) > 1 and not multiple and len(led) == 1 and led.issuperset(concluded):
        alive = tuple(led)
    if len(alive) == 1 and not multiple:
        return _longer_name(text, alive[0], texts)
    if len(alive) == 1 or (multiple and 0 < len(alive) < len(texts.words)):
        return alive
    return () if alive or together else None


_ENUMERATED = re.compile(
    r"(?::|\b(?:such as|including|like|namely|e\.g\.),?)\s+(?:[\w' -]{1,30},\s+){2,}(?:and\s+|or\s+)?(?:the\s+|an?\s+)?$",
    re.IGNORECASE,
)
"""Before the last of several things that are named as examples."""


def _longer_name(text: str, option: int, texts: OptionTexts) -> tuple[int, ...]:
    """The option, or the one other whose words are the option's and more, and stand together in any order ("decrease slightly")."""
    own = set(texts.words[option])
    if not (longer := [place for place, words in enumerate(texts.words) if own < set(words)]):
        return (option,)
    said = WORD.findall(text.lower())
    longer = [
        place
        for place in longer
        if (size := len(words := texts.words[place]))
        and any(set(words) == set(said[at : at + size]) for at in range(len(said) - size + 1))
    ]
    return (longer[0],) if len(longer) == 1 else (option,)


def in_condition(text: str, start: int) -> bool:
    """Whether what stands at text[start] is part of a condition that its sentence begins with ("If the pike died, ...")."""
    return (
        says_between(text, _CONDITIONS, start - 160, start)
        and _IN_CONDITION.search(text, max(0, start - 160), start) is not None
    )


_CONDITIONS = beginnings("if when suppose assuming given")
_IN_CONDITION = re.compile(r"(?:^|[.!?\n]\s{0,3})(?:if|when|suppose|assuming|given)\b[^.,;:!?\n]*$", re.IGNORECASE)


def under_condition(text: str, start: int, end: int, question: str | None) -> bool:
    """Whether text[start:end] is said under a condition that the question does not make ("If it is chronic, consider X")."""
    if question is None or not says_between(text, _MAKES_CONDITION, start - 160, end + 60):
        return False
    condition = _UNDER_CONDITION.match(sentence_before(text, start)) or _IF_AFTER.match(text, end)
    if condition is None:
        return False
    said = {stem(word) for word in WORD.findall(condition[1].lower()) if len(word) > 2 and word not in STOP}
    return bool(said) and 2 * len(said & _stems_asked(question)) < len(said)


@lru_cache(maxsize=4096)
def _stems_asked(question: str) -> frozenset[str]:
    return frozenset(stem(word) for word in WORD.findall(question.lower()))


_MAKES_CONDITION = beginnings("if unless depending should")
_MY_CONDITION = r"(?!\s+(?:i|we|you|one|asked|forced|any|so|not|there is only)\b)"
_UNDER_CONDITION = re.compile(
    rf"\W*(?:if|unless|should|depending on)\b{_MY_CONDITION}([^,.;:\n]{{3,120}}),", re.IGNORECASE
)
_IF_AFTER = re.compile(rf"\W{{0,3}}\s(?:if|unless)\b{_MY_CONDITION}([^,.;:\n]{{3,120}})", re.IGNORECASE)
_PREDICATE = re.compile(r"\b(?:is|are|was|were)\s+(?:(?:the|an?)\s+)?$", re.IGNORECASE)


def _answers(text: str, mentions: tuple[Mention, ...], first: int, question: str) -> bool:
    """Whether the first sentence names one option and no other, its other words (or those of its condition) are mostly the question's,
    and it denies and compares nothing and speaks of no test: then that is the answer, whatever its verb is and whatever is explained
    after it."""
    named = {
        mention.options
        for mention in mentions
        if mention.start < first and not _THAN.search(text, mention.start - 9, mention.start)
    }
    if len(text) > PROSE or named != {mentions[0].options[:1]} or _TURNS.search(text, first) is not None:
        return False
    start = condition.end() if (condition := _CONDITION.match(text)) else 0
    if _ELSEWHERE.search(text, start, first) is not None:
        return False
    others = condition[0] if condition else text[: mentions[0].start] + text[min(first, mentions[0].end) : first]
    said = _stems_that_count(others)
    return len(said) > 1 and 2 * len(said & _counting_stems_asked(question)) >= len(said)


def _stems_that_count(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in WORD.findall(text.lower()) if len(word) > 2 and word not in STOP)


_counting_stems_asked = lru_cache(maxsize=4096)(_stems_that_count)


_THAN = phrase("than", r"\bthan (?:the )?$")
_TURNS = phrase("however but actually wait although yet", r"\b(?:however|but|actually|wait|although|yet)\b")
_CONDITION = re.compile(r"\W*(?:if|when|suppose|assuming|given)\b[^.,;\n]{1,200},", re.IGNORECASE)
_ELSEWHERE = phrase(
    "not no n nor neither never without incorrect wrong false unlikely less least lowest worst rule ruled ruling exclude excluded excluding"
    " compare compared unlike similar like test tests testing look looking search check ask asks asked asking question evaluate evaluated"
    " evaluating evaluation assess assessed assessment monitor monitored monitoring recommend recommended differential rather instead t"
    " nicht kein keine keinen ohne pas aucun aucune ningún ninguna",
    r"(?:\b(?:not|no|nor|neither|never|without|incorrect|wrong|false|unlikely|less|least|worst|rul(?:es?|ed|ing) out|exclud\w+|compared?"
    r"|unlike|similar to|like|lowest (?:likelihood|probability|chance)|test(?:s|ing)? (?:for|of)|look(?:s|ed|ing)? for|search\w* for"
    r"|check\w* for|ask\w*|question|evaluat\w+|assess\w*|monitor\w*|recommend\w*|differential|rather|instead"
    r"|nicht|kein\w*|ohne|pas|aucune?|ninguna?|ningún)\b|(?<=n')t\b)",
)
"""What a sentence says that does not assert what it names."""
_CONCLUDES_LAST = phrase(
    "likely suggest indicate belong consistent therefore thus hence so conclude conclusion diagnosis appear point",
    r"\b(?:likely|suggests?|indicates?|belongs? to|consistent with|therefore|thus|hence|so|conclu\w+|diagnosis|appears? to be"
    r"|points? to)\b",
)
_NOT_BUT = phrase(
    "not",
    r"\bnot\b[^.;\n]{1,100}?,?\s+but\s+(?:rather\s+)?(?:(?:in|on|at|of|from|is|it is|a|an|the)\s+)*$",
)
"""What a statement puts in place of what it denies ("not in the frontal but in the parietal lobe")."""
_RESULT_IS = re.compile(
    r"\b(?:is|was|are|be|equals|is (?:also )?equal to)\s+(?:about |approximately |exactly )?[^\w\s]?$", re.IGNORECASE
)
"""Before the number that ends a response ("With 200 minutes a month the saving would be 52.61.")."""
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def _last_sentence(text: str) -> int:
    """Where the last sentence begins."""
    start = 0
    for match in _SENTENCE_END.finditer(text.rstrip(), max(0, len(text) - 600)):
        start = match.end()
    return start


_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|\n+(?=\S)|,? (?:so|therefore|thus|hence|giving)\b", re.IGNORECASE)


def _only_number(text: str, mention: Mention, final: int) -> bool:
    """Whether a number is the only one that a response without workings names, or the only one of its last sentence."""
    own = set(_ANY_NUMBER.findall(text[mention.start : mention.end]))
    if len(text) <= PROSE and text[: mention.start].rstrip(" $\n").endswith("=") and not REST.search(text, mention.end):
        return True  # the result of a calculation that ends the response
    if (
        len(text) <= PROSE
        and _RESULT_IS.search(text[max(0, mention.start - 20) : mention.start])
        and not REST.search(text, mention.end)
    ):
        return True
    start = 0 if len(text) <= PROSE and "=" not in text and own.issuperset(_ANY_NUMBER.findall(text)) else final
    if mention.start < start or not own.issuperset(_ANY_NUMBER.findall(text[start:])):
        return False
    signs = text.count("=", start)
    return signs == 0 or (
        signs == 1 and text[: mention.start].rstrip().endswith("=") and not REST.search(text, mention.end)
    )


def _counts_another(text: str, mention: Mention, question: str | None) -> bool:
    """Whether a number is that of another thing than the question's: of a grade or segment, of a change, of a distance, or with a unit
    where it asks how many there are."""
    if question is None:
        return False
    asked = question.lower()
    before = text[max(0, mention.start - 40) : mention.start]
    if (of := _NUMBER_OF.search(before)) and of[1].lower() not in asked:
        return True
    if (by := _CHANGED_BY.search(before)) and by[1].lower()[:5] not in asked and "much" not in asked:
        return True
    if _APART.match(text, mention.end) and not _ASKS_APART.search(asked):
        return True
    unit = _UNIT_AFTER.match(text, mention.end) if "how many" in asked else None
    return unit is not None and unit[1] not in asked


_NUMBER_OF = re.compile(
    r"\b(ribs?|vertebra|grade|stage|segment|type|class|level|zone|figure|image|slice|series|phase|day|week)s? (?:no\. ?)?$",
    re.IGNORECASE,
)
_CHANGED_BY = re.compile(
    r"\b(reduced|increased|decreased|elevated|raised|lowered|narrowed) by (?:about |up to )?$", re.IGNORECASE
)
_APART = re.compile(r"\s+(?:away |distant )?from the\b", re.IGNORECASE)
_ASKS_APART = re.compile(r"\b(?:distance|far|from|between|away|depth)\b")
_UNIT_AFTER = re.compile(r"\s?(mm|cm|ml|mg|percent|hu)\b", re.IGNORECASE)


def _is_range(text: str, mention: Mention, texts: OptionTexts) -> bool:
    """Whether a word that tells another option is joined before ("mild to moderate stenosis")."""
    numbered = len(mention.options) == 1 and _NUMBERED.search(text, mention.start, mention.end)
    if numbered and _RANGE_AFTER.match(text, mention.end):
        return True
    joined = text[max(0, mention.start - 30) : mention.start]
    if not joined.rstrip().lower().endswith(_JOINS) or (before := _RANGE_BEFORE.search(joined)) is None:
        return False
    word = stem(before[1].lower())
    return any(word in words for option, words in enumerate(texts.distinguishing) if option not in mention.options)


_WHOLE_IMAGE = (
    r"(?:image|x-?ray|radiograph|scan|study|film|fundus|eye|tissue|exam\w*|appearance|chest|finding|result|mri|ct"
    r"|it|this|that|bild|befund|aufnahme|cliché|radiographie|imagen|estudio)s?"
)
_NORMAL_PART = re.compile(
    rf"\s+(?!(?:{_WHOLE_IMAGE}|and|or|but|because|with|as|in|on|for|given|due|since)\b)[a-z]", re.IGNORECASE
)
_PART_IS_NORMAL = re.compile(
    rf"(?<![\w-])(?!{_WHOLE_IMAGE}\b)[\w-]+\s+(?:is|are|appears?|looks?|remains?|est|sont|ist|sind|es|está)\s+"
    r"(?:to be\s+)?(?:\w+ly\s+|within\s+)?$",
    re.IGNORECASE,
)
"""Where "normal" is said of a part and not of the image ("a normal heart", "the heart size is normal")."""


def _normal_part(text: str, start: int, end: int, before: str) -> bool:
    return text[start:end].lower() == "normal" and bool(_NORMAL_PART.match(text, end) or _PART_IS_NORMAL.search(before))


_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CJK_SAYS = re.compile(
    r"(?:显示|显示为|提示|表现为|考虑为?|诊断为?|符合|存在|可见|属于|是|为|有|选|答案|^)[了的\s::\"“]*$"
)
_CJK_DENIES = re.compile(r"没有|无|不|未|建议|推荐|排除|非|否|既往|曾")
_CJK_TAKES_BACK = re.compile(r"的?(?:病?史|(?:可能性)?(?:较|更)?(?:小|低)|除外|待排)")


def _is_meant(
    text: str, mention: Mention, texts: OptionTexts, short: bool, alone: bool, question: str | None = None
) -> bool:
    clause = clause_start(text, mention.start), mention.start
    before = text[slice(*clause)]
    lead = _LEADS.fullmatch(before) is not None
    if any(option in texts.common for option in mention.options):
        return lead and mention.start < 8 and _ENDS.match(text, mention.end) is not None
    if _normal_part(text, mention.start, mention.end, before):
        return False
    own = text[mention.start : mention.end].lower()
    if (own == "right" and AGREES.search(before)) or (own == "left" and _LEFT_SO.match(text, mention.end)):
        return False
    if said_elsewhere(text, mention.start, mention.end, question):
        return False
    if question is not None and asks(question, _ASKS_WHETHER) and _is_of_another(before, texts, question):
        return False
    if _CJK.search(text, mention.start, mention.end):
        before = before[-16:].rsplit(",", 1)[-1]
        said = _CJK_SAYS.search(before) is not None and _CJK_DENIES.search(before) is None
        return said and _CJK_TAKES_BACK.match(text, mention.end) is None
    negative = texts.negative.issuperset(mention.options)
    hypothetical = alone and _WOULD.match(text, mention.end) and not _CONDITION.match(text)
    if not negative and (hypothetical or (not alone and is_denied(text, mention.start, mention.end))):
        return False
    if ONLY_NEAR.search(text, *clause) or WEIGHED.search(text, *clause) or _is_moved(before, question):
        return False
    if _TOPIC_AFTER.match(text, mention.end) or (negative and _NARROWED.match(text, mention.end)):
        return False
    if unharmed(text, mention.end):  # "the right kidney appears normal"
        return False
    if (
        seen_after(text, mention.end)
        or mention.labelled
        or ASSERTS.search(text, *clause)
        or before.rstrip().endswith("=")
        or _SAYS_THAT.search(before)
        or _NOT_BUT.search(text, mention.start - 160, mention.start)
    ):
        return True
    if alone:
        return not _DEFINES_ALONE.match(text, mention.end)
    return (lead or short) and not DEFINES_AFTER.match(text, mention.end) and not _PART_OF.search(before)


def _is_moved(before: str, question: str | None) -> re.Match[str] | None:
    """Where something is said to have moved to what follows ("a shift to the left"), of which the question does not ask."""
    return _MOVED_TO.search(before) if question is not None and not asks(question, _MOVED) else None


_MOVED = re.compile(r"\b(?:shift|displac|deviat|push|rotat|tilt|point|mov)", re.IGNORECASE)
_MOVED_TO = re.compile(
    r"\b(?:shift\w*|displac\w+|deviat\w+|pushed) (?:to|into|towards?) (?:the )?(?:left |right )?$", re.IGNORECASE
)
_WOULD = re.compile(
    r"[^.;:\n,]{0,40}?\s(?:would|should|can|could|may|might)\s+(?!be\b|(?:\w+ly )?(?:in|de)crease)", re.IGNORECASE
)
_DEFINES_ALONE = re.compile(
    r"\s+(?:(?:is|are)(?! (?:\w+er|more \w+|less \w+) than\b)|refers?|means?|describes?|occurs?|usually|typically|often|uses"
    r"|requires|involves)\b",
    re.IGNORECASE,
)


_THAN_A = re.compile(r"\bthan (?:an? |the )?\w+ $", re.IGNORECASE)
_ASKS_WHETHER = re.compile(r"^\W*(?:is|are|was|were|does|do|did)\b", re.IGNORECASE)


def said_elsewhere(text: str, start: int, end: int, question: str | None) -> bool:
    """Whether text[start:end] is what is advised or comes next, or was earlier, of which the question does not ask."""
    if question is None:
        return False
    if says(text, _ADVICE) and not asks(question, _ASKS_ADVICE):
        before = text[max(0, start - 60) : start]
        if _ADVISED_AFTER.match(text, end) or _ADVISED_BEFORE.search(before) or _NEXT_BEFORE.search(before):
            return True
    earlier = says_between(text, _EARLIER, end, end + 60) and _EARLIER_AFTER.match(text, end) is not None
    return earlier and not asks(question, _ASKS_EARLIER)


_ADVICE = beginnings(
    "recommend recommended advise advised warranted helpful useful necessary required considered help confirm able next see consult contact"
)
_EARLIER = beginnings("ago last past previous prior earlier")
_ASKS_ADVICE = re.compile(
    r"\b(?:recommend|advis|next|should|treat|test|manage|appropriate|best|step|indicat|need|will|refer|order|suggest|therap|would)",
    re.IGNORECASE,
)
_ADVISED_AFTER = re.compile(
    r"(?:(?! (?:is|are)\b) [\w-]+){0,4} (?:is|are|would be|may be|might be|should be|can be) (?:\w+ly )?"
    r"(?:recommended|advised|warranted|helpful|useful|necessary|required|considered)\b"
    r"|(?: (?:or|and) [\w-]+)? (?:may|might|could|can|would) (?:help|confirm|be able)\b"
    r"|(?: with [\w-]+)? (?:is|are|as) the next step",
    re.IGNORECASE,
)
_ADVISED_BEFORE = re.compile(
    r"\b(?:(?:i |we )?(?:would )?(?:recommend|advise)|please (?:see|consult|contact)|(?:should|must|need to) (?:see|consult))"
    r" (?:an? |the |your |further |additional )*$|(?:建议|推荐|需要?)[^。,;，]{0,4}$",
    re.IGNORECASE,
)
_NEXT_BEFORE = re.compile(r"\bnext,? (?:(?:use|insert|do|the|an?|be) )*$", re.IGNORECASE)
_ASKS_EARLIER = re.compile(
    r"\b(?:previous|prior|earlier|before|past|history|ago|last|compar|chang|first|original|initial)", re.IGNORECASE
)
_EARLIER_AFTER = re.compile(
    r"[^.;,\n]{0,25}?\b(?:ago|last (?:year|month|week)|in the past|in (?:the|a) (?:previous|prior|earlier|last)"
    r"|on (?:the|a) (?:previous|prior))\b",
    re.IGNORECASE,
)
_TOPIC_AFTER = re.compile(
    r"(?: [a-z-]+){0,2} (?:is|are) (?:usually|often|typically|commonly|generally|frequently|sometimes) (?!due|caused|seen)"
    r"|[ -](?:like|mimic\w*)\b| (?:risk|screening|incidence|prevalence|mortality|staging|awareness)\b",
    re.IGNORECASE,
)
"""What makes an option's text a word of another thing ("melanoma-like", "melanoma risk")."""
_NARROWED = re.compile(
    r"\s+(?:of|involving|(?!(?:is|are|was|were|can|could|has|have|seen|visible|present|identified|noted|detected|evident|found|observed"
    r"|shown|in|on|at|and|or|but|as|because|since|with|by|to|here|therefore|so|for|from|that|which|within|findings?|signs?|evidence"
    r"|based)\b)[a-z]+\s+(?:is|are|was|were|can)\b)",
    re.IGNORECASE,
)
"""After a negation, what makes it one of less than the option says ("no dissection of the arch", "no DR staging is possible")."""
_PART_OF = re.compile(
    r"\b(?:veins?|arter(?:y|ies)|walls?|borders?|margins?|capsule|lumen|ducts?|surface|edge|hilum|tail|tip|root|branch)"
    r" (?:of|to) (?:the )?$",
    re.IGNORECASE,
)
_SAYS_THAT = re.compile(r"\b(?:say|conclude|deduce|infer|see|know|find) that\s*$", re.IGNORECASE)
_SOUND = beginnings("intact preserved unremarkable spared healthy normal clear")


def unharmed(text: str, end: int) -> bool:
    """Whether the clause goes on to call healthy what ends at text[end]."""
    return says_between(text, _SOUND, end, end + 120) and _UNHARMED.match(text, end) is not None


_UNHARMED = re.compile(
    r"[^.;\n,]{0,40}?\b(?:is|are|appears?|remains?|looks?)\s+(?:\w+\s+)?(?:intact|preserved|unremarkable|spared|healthy|normal|clear)\b",
    re.IGNORECASE,
)


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
        if (word == "right" and AGREES.search(before)) or (word == "left" and _LEFT_SO.match(text, match.end())):
            continue
        if said_elsewhere(text, match.start(), match.end(), question):
            continue
        if word.isdigit() and _THAN_A.search(before):
            continue
        if _normal_part(text, match.start(), match.end(), before) and "normal" in texts.index:
            continue
        if _TOPIC_AFTER.match(text, match.end()) or under_condition(text, match.start(), match.end(), question):
            continue
        if _is_of_another(before, texts, question):
            continue
        if unharmed(text, match.end()):
            continue
        said.add(word)
        if both:
            together.setdefault(word, set()).add(part_of_both(match.start(), match.end(), both))
        seen = ASSERTS.search(text, *clause) or seen_after(text, match.end())
        beside = ONLY_NEAR.search(text, *clause) or _PART_OF.search(before) or _is_moved(before, question)
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


def _is_of_another(before: str, texts: OptionTexts, question: str | None) -> bool:
    """Whether a clause says what follows it of a thing that neither an option nor the question names ("the mediastinum is")."""
    said = _OF_A_THING.search(before)
    if said is None:
        return False
    thing = stem(said[1].lower())
    return thing not in _ANY_THING and thing not in texts.known and thing not in _stems_asked(question or "")


_OF_A_THING = re.compile(
    r"([^\W\d_]{3,})\s+(?:is|are|was|were|appears?|looks?|seems?|remains?)\s+(?:to be\s+)?(?:\w+ly\s+)?$", re.IGNORECASE
)
_ANY_THING = frozenset(
    map(
        stem,
        words_in(
            "image images picture scan film radiograph study slide photo view finding findings lesion lesions mass area areas region"
            " abnormality abnormalities structure structures side this that they these there which what answer option choice diagnosis"
            " appearance size silhouette cardiac itself the and but she it one"
            " ones arrow patient modality type organ tissue part location signal pattern most"
        ),
    )
)


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
