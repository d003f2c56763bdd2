"""Options that a response names by their own words, where the sentence says that they are there."""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.asserted.around import (
    AGREES,
    ASSERTS,
    CONDITION,
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
    stems_that_count,
    under_condition,
    unharmed,
)
from eval_harness.answer_reading.asserted.numbers import counts_another, is_range, only_number
from eval_harness.answer_reading.letters import Found, most
from eval_harness.answer_reading.mentions import (
    PROSE,
    Mention,
    begins_item,
    both_named,
    explained_from,
    list_of_all,
    only_lists,
    part_of_both,
    text_mentions,
)
from eval_harness.answer_reading.names import WORD
from eval_harness.answer_reading.options import OptionTexts
from eval_harness.answer_reading.polarity import clause_start, is_denied
from eval_harness.answer_reading.words import asks, phrase

_LEADS = re.compile(
    r"\W*(?:(?:therefore|thus|hence|so|overall|in conclusion|in summary)\b,?\s*)?(?:(?:a|an|the)\s+)?", re.IGNORECASE
)
_ENDS = re.compile(r"\W*(?:$|[.,;:!?\n])")
_ENDS_CLAUSE = re.compile(rf"{_ENDS.pattern}|\s+and\b", re.IGNORECASE)
_CONCLUDES = phrase(
    "most therefore thus hence in overall best final diagnosis must has leaves leaving",
    r"\b(?:most likely|most probabl[ey]|therefore|thus|hence|in conclusion|overall|best (?:fits|matches|described|option)"
    r"|most consistent|final|diagnosis is|must be|has to be|leaves|leaving)\b",
)


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
        if mention.crossed or (is_range(text, mention, texts) and not is_denied(text, mention.start, mention.end)):
            return ()
        if not texts.numeric.isdisjoint(mention.options) and (
            not only_number(text, mention, final) or counts_another(text, mention, question)
        ):
            continue
        if not texts.common.isdisjoint(mention.options) and begins_item(text, mention):
            items.update(mention.options)
        edge = max(0, mention.start - 120)
        if text.count(",", edge, mention.start) > 1 and _ENUMERATED.search(text, edge, mention.start):
            continue
        alone = answered and mention.start < first and not _is_compared_with(text, mention)
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


_PREDICATE = re.compile(r"\b(?:is|are|was|were)\s+(?:(?:the|an?)\s+)?$", re.IGNORECASE)


def _answers(text: str, mentions: tuple[Mention, ...], first: int, question: str) -> bool:
    """Whether the first sentence names one option and no other, its other words (or those of its condition) are mostly the question's,
    and it denies and compares nothing and speaks of no test: then that is the answer, whatever its verb is and whatever is explained
    after it."""
    named = {mention.options for mention in mentions if mention.start < first and not _is_compared_with(text, mention)}
    if len(text) > PROSE or named != {mentions[0].options[:1]} or _TURNS.search(text, first) is not None:
        return False
    start = condition.end() if (condition := CONDITION.match(text)) else 0
    if _ELSEWHERE.search(text, start, first) is not None:
        return False
    others = condition[0] if condition else text[: mentions[0].start] + text[min(first, mentions[0].end) : first]
    said = stems_that_count(others)
    return len(said) > 1 and 2 * len(said & _counting_stems_asked(question)) >= len(said)


def _is_compared_with(text: str, mention: Mention) -> bool:
    return _THAN.search(text, mention.start - 9, mention.start) is not None


_counting_stems_asked = lru_cache(maxsize=4096)(stems_that_count)
_THAN = phrase("than", r"\bthan (?:the )?$")
_TURNS = phrase("however but actually wait although yet", r"\b(?:however|but|actually|wait|although|yet)\b")
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


def _last_sentence(text: str) -> int:
    """Where the last sentence begins."""
    start = 0
    for match in _SENTENCE_END.finditer(text.rstrip(), max(0, len(text) - 600)):
        start = match.end()
    return start


_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|\n+(?=\S)|,? (?:so|therefore|thus|hence|giving)\b", re.IGNORECASE)
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
    if normal_part(text, mention.start, mention.end, before):
        return False
    own = text[mention.start : mention.end].lower()
    if (own == "right" and AGREES.search(before)) or (own == "left" and LEFT_SO.match(text, mention.end)):
        return False
    if said_elsewhere(text, mention.start, mention.end, question):
        return False
    if question is not None and asks(question, _ASKS_WHETHER) and is_of_another(before, texts, question):
        return False
    if _CJK.search(text, mention.start, mention.end):
        before = before[-16:].rsplit(",", 1)[-1]
        said = _CJK_SAYS.search(before) is not None and _CJK_DENIES.search(before) is None
        return said and _CJK_TAKES_BACK.match(text, mention.end) is None
    negative = texts.negative.issuperset(mention.options)
    hypothetical = alone and _WOULD.match(text, mention.end) and not CONDITION.match(text)
    if not negative and (hypothetical or (not alone and is_denied(text, mention.start, mention.end))):
        return False
    if ONLY_NEAR.search(text, *clause) or WEIGHED.search(text, *clause) or is_moved(before, question):
        return False
    if TOPIC_AFTER.match(text, mention.end) or (negative and _NARROWED.match(text, mention.end)):
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
    return (lead or short) and not DEFINES_AFTER.match(text, mention.end) and not PART_OF.search(before)


_WOULD = re.compile(
    r"[^.;:\n,]{0,40}?\s(?:would|should|can|could|may|might)\s+(?!be\b|(?:\w+ly )?(?:in|de)crease)", re.IGNORECASE
)
_DEFINES_ALONE = re.compile(
    r"\s+(?:(?:is|are)(?! (?:\w+er|more \w+|less \w+) than\b)|refers?|means?|describes?|occurs?|usually|typically|often|uses"
    r"|requires|involves)\b",
    re.IGNORECASE,
)
_ASKS_WHETHER = re.compile(r"^\W*(?:is|are|was|were|does|do|did)\b", re.IGNORECASE)
_NARROWED = re.compile(
    r"\s+(?:of|involving|(?!(?:is|are|was|were|can|could|has|have|seen|visible|present|identified|noted|detected|evident|found|observed"
    r"|shown|in|on|at|and|or|but|as|because|since|with|by|to|here|therefore|so|for|from|that|which|within|findings?|signs?|evidence"
    r"|based)\b)[a-z]+\s+(?:is|are|was|were|can)\b)",
    re.IGNORECASE,
)
"""After a negation, what makes it one of less than the option says ("no dissection of the arch", "no DR staging is possible")."""
_SAYS_THAT = re.compile(r"\b(?:say|conclude|deduce|infer|see|know|find) that\s*$", re.IGNORECASE)
