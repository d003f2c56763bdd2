"""Yes or no out of a response: what it says, what it denies or asserts without the word, and whether it repeats the question.

Every function takes a text that has been made plain and returns `yes`, `no`, `` (both, or neither for sure) or None (nothing found).
"""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.plain_text import stem, words_of

_YES = r"yes|yeah|yep|yup|affirmative"
"""Not "sure", "certainly": they open a reply ("Certainly! Let us look at it."), whichever way it goes on."""
_NO = r"no|nope|nah"
_FOREIGN = {
    "yes": "oui sí sì ja si да evet sim tak igen áno ano hai はい 是 是的 有 对 對 예 네 نعم हाँ हां ναι כן",
    "no": "non nein nej нет hayır não nie nem iie いいえ 否 不 不是 没有 沒有 아니요 아니오 لا नहीं όχι לא",
}
_FOREIGN_WORDS = {word: kind for kind, words in _FOREIGN.items() for word in words.split()}
_WHOLE = _FOREIGN_WORDS | {
    "y": "yes", "n": "no", "true": "yes", "false": "no", "correct": "yes", "incorrect": "no",
    "negative": "no", "positive": "yes", "absent": "no", "present": "yes", "not present": "no", "not really": "no",
    "that's correct": "yes", "absolutely": "yes", "of course": "yes", "of course not": "no", "certainly not": "no", "definitely not": "no",
    "that is correct": "yes", "that is not correct": "no", "that is incorrect": "no",
    "absolutely not": "no", "sure": "yes", "certainly": "yes", "indeed": "yes", "definitely": "yes",
}  # fmt: skip

_UNDECIDED = re.compile(
    r"\b(?:yes|no)\s*(?:/|or|and|nor)\s*(?:a\s+)?(?:yes|no)\b|\b(?:neither|either|both)\s+yes\b|yes-no\b|yes-or-no\b",
    re.IGNORECASE,
)
_SURELY = r"(?:(?:certainly|definitely|clearly|probably|(?:most )?likely|indeed|absolutely|simply)\s+)?"
_NOT_NO = (
    r"(?!\s+(?:puedo|se puede|es posible|sé)\b"
    r"|\s+(?:idea|clue|information|image|answer|comment|way|doubt|one|matter|longer|problem|question)\b|\s+(?:\w+\s+){0,4}\w+\?"
    r"|[,.]?\s+(?:sorry,?\s+)?i (?:am (?:unable|not able)|can not (?:help|assist|determine|tell|say|answer|provide|view|interpret))\b"
    r"|[,.]?\s+(?:the|this) \w+ does not (?:provide|contain|offer|give|show|have|include|allow) (?:enough|sufficient|adequate"
    r"|a reliable|any conclusion)\b"
    r"|[,.]?\s+it (?:can not be|is not possible to) (?:determine|answer|sa[iy]|tell|assess)|\s*\.\s*\d|-)"
)
_LEAD = re.compile(
    rf"^\W{{0,20}}(?:(?:answer|response|a|final answer|the answer is|it(?: is|'s) an?(?: (?:definite|clear|firm))?"
    rf"|definitely|certainly|probably|(?:most )?likely|clearly|indeed|(?:the|this) (?:image|scan|x-?ray) shows"
    rf"|absolutely)\W+)?"
    rf"(?:(?P<yes>{_YES}|(?:correct|true)(?=\s*[,.!]))|(?P<no>(?:{_NO}){_NOT_NO}|(?:incorrect|false)(?=\s*[,.!])"
    rf"|not that i (?:can|could) (?:see|tell)|(?<=probably )not|(?<=likely )not))\b(?!-)(?!\s+(?:yes|no"
    rf"|not)\b(?!\s+doubt))(?!\s+(?:only )?(?:if|when)\b)(?!\W{{1,4}}(?:yes|no)\W*(?:$|[,.;!\n]))",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    rf"\b(?:answer|response|conclusion|verdict)\b\W?[^.\n:=?!]{{0,80}}?(?:\s*(?:\bis\b|\bwould be\b|\bwas\b|\bshould be\b|:|="
    rf"|->))+[\s\"'(\[]*{_SURELY}"
    rf"(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b|\bi(?:'d| would| will)? (?:say|answer|think|believe|choose)[\s,:\"']+(?:(?P<yes2>yes)"
    rf"|(?P<no2>no))\b(?!\s+\w)"
    rf"|\b(?:therefore|thus|hence|so|actually|wait|correction|overall|finally|in conclusion|conclusion)\b[\s,:.\"'-]*(?:(?P<yes3>yes)"
    rf"|(?P<no3>no))\b(?=\W*(?:$|[.,;!\n]))"
    r"|\b(?:the|this|that) (?:statement|claim|assertion) is (?:(?P<yes4>true|correct)|(?P<no4>false|incorrect|not true|not correct))\b",
    re.IGNORECASE,
)
_FOREIGN_STATEMENT = re.compile(
    r"(?:\b(?:antwort|lösung|respuesta|réponse|risposta|resposta|ответ)\b(?:\s+\w+){0,2}?|答案|答え|正解|정답)\s*(?:\b(?:ist|lautet"
    r"|es|est|è|é|is)\b|[是はは은:：-])?"
    r"\s*:?\s*[\"'«]?(?P<word>\w+)",
    re.IGNORECASE,
)
_LAST = re.compile(r"(?:[.!?\n])[\s\"'(\[]*(yes|no)[\s.!\"')\]]*$", re.IGNORECASE)
_ALONE = re.compile(
    r"(?:^|[.!?;\n:,\"'(\[]|\s[-–—]|->|=>|→)\s*(?:(?P<yes>yes)|(?P<no>no(?!\.\s?\d)))\s*(?=$|[.!,;\n\"')\]])",
    re.IGNORECASE,
)
_BEGINS = (
    r"^\W{0,20}(?:(?:based on|from|in|on|according to|looking at|upon|given)\b[^.,\n]{1,80},\s*|(?:therefore|thus|so|hence|indeed),?\s+"
    r"|(?:i (?:do not )?(?:think|believe)|it (?:appears|seems)) (?:that )?)?"
)
_FOUND = (
    r"(?:seen|visible|present|identified|noted|detected|found|evident|observed|shown|demonstrated"
    r"|visuali[sz]ed|apparent|appreciated)"
)
_DENIES = re.compile(
    _BEGINS + r"(?:(?:i|we) (?:can |could |do |did |am |was )?(?:not )?(?:see|find|notice|observe|identify|detect) no\b"
    r"|there (?:is|are|was|were|appears? to be|seems? to be) (?:no|not)\b(?!\s+(?:doubt|question|way|image|need|reason|answer"
    r"|information|only)\b)"
    r"|(?:the|this|that|it)\b[^.\n]{0,80}?\b(?:does|do|did|is|are|was|were) not\b"
    r"|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?|reveals?|demonstrates?|has|have) no\b"
    rf"|no\s+(?:[\w-]+\s+){{0,6}}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?{_FOUND}|no (?:evidence|sign|signs|indication) of\b"
    r"|there (?:does|do|did) not\b|(?:i|we) (?:do|did|can|could) not (?:see|find|identify|detect|observe|notice|visuali[sz]e"
    r"|appreciate|discern)"
    r" (?:an?|any|signs?|evidence|obvious|clear|definite|the (?:presence|signs?))\b"
    r"|(?:i am|we are) not able to (?:see|find|identify|detect) (?:an?|any)\b"
    r"|(?:i|we) (?:do|did) not (?:see(?! (?:the|your|an?) (?:image|picture|photo|attachment))|(?:believe"
    r"|think) (?:that )?(?:there|it|this|the))\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:is|are|was|were)\s+(?:absent|negative for|not (?:\w+ly )?{_FOUND})\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:can|could) not be {_FOUND}"
    r"|negative for\b)",
    re.IGNORECASE,
)
_NOTHING = (
    r"(?:(?:no|not|nothing|neither|none|little|few|limited|insufficient|minimal|probably|possibly|perhaps|maybe|absence|lack|loss"
    r"|zero|hardly|barely|scant|almost no|normal"
    r"|possible|suspected|evidence against|error|mistake|something|several things|great question"
    r"|question|problem|issue|need|way|room|image|doubt|suspicion|concern|chance|likelihood|probability|risk|limit\w*|uncertain\w*"
    r"|possib\w+|difficult\w*|(?:two|several|many|multiple|some) (?:possib\w+|answers?|options?|limit\w*|uncertain\w*))\b"
    r"|(?:small|slight|low|high|real|good|some|serious) (?:possib\w+|chance|likelihood|probability|risk|suspicion|uncertain\w*))"
)
"""What "there is" may go on with that affirms nothing."""
_NEGATED = re.compile(r"\b(?:no|not|without|nor|neither|free of|negative)\b", re.IGNORECASE)
_WEIGHTS = re.compile(
    r"\byes\W{1,4}0?[.\d]\d*.{0,40}?\bno\W{1,4}0?[.\d]\d*|\bno\W{1,4}0?[.\d]\d*.{0,40}?\byes\W{1,4}0?[.\d]", re.I | re.S
)
_IF = re.compile(r"\b(?:if|unless|had)\b[^.!?\n]*$", re.IGNORECASE)
_AFFIRMS = re.compile(
    _BEGINS + r"(?:there (?:is|are)"
    rf"\s+(?!(?:(?:a|an|some|clear|definite)\s+)?{_NOTHING})\w+|it (?:is|does)\W*$|positive for\b)|^\W{{0,20}}indeed\b",
    re.IGNORECASE,
)


def whole(text: str) -> str | None:
    """A response that is nothing but yes or no, in many languages."""
    said = text.strip(".!?,;:\"'()[]{} \n\t。！，").strip().lower()
    if said in ("yes", "no"):
        return said
    if said in _WHOLE:
        return _WHOLE[said]
    words = said.split()
    return words[0] if len(words) > 1 and words[0] in ("yes", "no") and len(set(words)) == 1 else None


def stated(text: str) -> str | None:
    """The last explicit statement: "the answer is no", "so, yes", a last sentence that is only the word."""
    if _WEIGHTS.search(text[:300]):
        return ""
    text = _without_pairs(text)
    said = [(match.start(), _kind(match)) for match in _STATEMENT.finditer(text) if not _would_be(text, match)]
    if (last := _LAST.search(text, max(0, len(text) - 60))) is not None and text[: last.start()].strip():
        if {_kind(match) for match in _ALONE.finditer(text)} != {last[1].lower()}:
            return said[-1][1] if said else ""
        said.append((last.start(1), last[1].lower()))
    for match in _FOREIGN_STATEMENT.finditer(text):
        if (kind := _FOREIGN_WORDS.get(match["word"].lower())) is not None:
            said.append((match.start(), kind))
    return max(said)[1] if said else None


def leading(text: str) -> str | None:
    """A response that begins with yes or no."""
    if (foreign := _foreign_lead(text)) is not None:
        return foreign
    lead = _LEAD.match(_without_pairs(text))
    return _kind(lead) if lead and not _NO_BUT.match(text) else None


_NO_BUT = re.compile(
    r"\W{0,20}no\s+(?!there|it|this|that|the|i\b)\w[^.\n]{0,120}?\b(?:but|however)\b[^.\n]{0,20}?\bthere (?:is|are)\b",
    re.IGNORECASE,
)
"""A denial that goes on with what there is instead ("No pneumothorax, but there is an effusion"): only the question tells which counts."""


def alone(text: str) -> str | None:
    """Yes or no by itself somewhere in the response."""
    found = {_kind(match) for match in _ALONE.finditer(_without_pairs(text))}
    return found.pop() if len(found) == 1 else "" if found or _UNDECIDED.search(text) else None


def denies(text: str) -> str | None:
    """A response that begins with a denial, without the word no: "there is no nodule", "I cannot see any"."""
    return "no" if _DENIES.match(text) and not _NO_BUT.match(text) else None


def affirms(text: str) -> str | None:
    """A response that begins with "there is", and denies nothing."""
    return "yes" if _AFFIRMS.match(text) and not _NEGATED.search(text[:300]) else None


_EMPTY_WORDS = frozenset(
    {
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "does",
        "do",
        "did",
        "has",
        "have",
        "had",
        "can",
        "could",
        "will",
    }
    | {
        "would",
        "there",
        "this",
        "that",
        "these",
        "to",
        "look",
        "looks",
        "appear",
        "appears",
        "seem",
        "seems",
        "located",
        "situated",
        "seen",
    }
)
_ABOUT = re.compile(
    r"\s*,?\s*(?:shown |seen |depicted |given )?\b(?:in|on|from|by|within) (?:the|this|these) (?:\w+ )?"
    r"(?:image|picture|figure|scan|x-?ray|radiograph|photo|graph|chart|diagram)s?(?: shown| above| below| provided)?\W*$",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:if|whether|may|might|could|possibly|perhaps|probably not|unlikely|hardly|false|incorrect)\b",
    re.IGNORECASE,
)


_EXISTS = re.compile(r"\W*(?:is|are|was|were) there\b", re.IGNORECASE)
"""A question about what is there, whose words in a sentence do not by themselves say that it is."""
_SAYS_THERE = re.compile(
    r"\b(?:there (?:is|are)|shows?|showing|reveals?|demonstrates?|depicts?|displays?|features?|contains?|have|has|(?<!associated )with"
    r"|suggests?|suggestive of|indicat\w+|evidence of|presence of|i (?:can )?see)\b",
    re.IGNORECASE,
)
_IS_THERE = re.compile(rf"\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?{_FOUND}\b", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?<=[.!?])\s+|\n|;|\b(?:but|however|although|though|whereas|while)\b"
    r"|,\s*(?=(?:and|so|which|there|the|it|this|that|a|an)\b)",
    re.IGNORECASE,
)
_NEGATES = re.compile(
    r"\b(?:no|not|without|absent|absence|nor|neither|never|none|lacks?|lacking|free of|clear of|negative|rather than|instead of|unlike"
    r"|resolved|resolution of|(?:ruled|ruling|rules?) out|excluded?s?|excludes|cannot|n't)\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:with|and|or|has|have|shows?)\s+no\b|\bwithout\b|[,(]\s*(?:no|not|rather than|instead of|unlike)\b",
    re.IGNORECASE,
)
"""Where a sentence goes on to deny something else ("a nodule with no calcification")."""


def repeats(text: str, question: str) -> str | None:
    """Whether a declarative response says what the question asks, word for word and in its order: "Is X larger than Y?" - "X is larger
    than Y." is yes, "X is not larger than Y." no. A word that is missing, swapped or added in between says nothing; nor do more than one
    negation, or the bare words of a question about what is there ("Is there an X?" - "A history of X.")."""
    wanted = _content(_ABOUT.sub("", question.strip()))
    exists = _EXISTS.match(question) is not None
    if not (1 if exists else 2) <= len(wanted) <= 40 or len(text) > 600:
        return None
    for sentence in re.split(r"(?<=[.!?])\s+|\n", text):
        if sentence.rstrip().endswith("?") or _UNSURE.search(sentence):
            continue
        for clause in _CLAUSE.split(sentence):
            if not _repeats_words(_content(clause), wanted):
                continue
            own = _own_part(clause, wanted)
            negations = len(_NEGATES.findall(own))
            if negations:
                return "no" if negations == 1 and "not" not in wanted else None
            return "yes" if not exists or _says_there(own, wanted) else None
        if (other := _INSTEAD.search(sentence)) and not _OFFERS.search(question):
            denied = set(_content(other[1]))
            if denied and denied <= set(wanted) and not set(_content(sentence[: other.start()])) >= set(wanted):
                return "no"
    return None


_INSTEAD = re.compile(
    r"[,(]\s*(?:and |but )?(?:not|rather than|instead of)\s+(?:(?:in|on|at|of|from)\s+)?([^.,;()]{2,80})[).]*$",
    re.IGNORECASE,
)
"""What a statement sets aside ("a CT scan, not an MRI")."""
_OFFERS = re.compile(r"\b(?:or|not|than|instead|image|picture)\b(?!\W*$)", re.IGNORECASE)


def _says_there(clause: str, wanted: list[str]) -> bool:
    """Whether the clause says of the wanted words that they are there ("shows X", "X is seen")."""
    return any(_repeats_words(_content(clause[verb.end() :]), wanted) for verb in _SAYS_THERE.finditer(clause)) or any(
        _repeats_words(_content(clause[: verb.start()]), wanted) for verb in _IS_THERE.finditer(clause)
    )


def _repeats_words(said: list[str], wanted: list[str]) -> bool:
    affirmed = [word for word in said if word != "not"]
    return any(affirmed[i : i + len(wanted)] == wanted for i in range(len(affirmed) - len(wanted) + 1))


def _own_part(sentence: str, wanted: list[str]) -> str:
    """The part of the sentence up to where it denies something else, as long as that part holds the wanted words."""
    for beside in _BESIDE.finditer(sentence):
        if _repeats_words(_content(sentence[: beside.start()]), wanted):
            return sentence[: beside.start()]
    return sentence


def _content(text: str) -> list[str]:
    words = (stem(word) for word in words_of(text) if word not in _EMPTY_WORDS)
    return [word.removesuffix("s") if len(word) > 3 else word for word in words]


@lru_cache(maxsize=4)
def _without_pairs(text: str) -> str:
    """Without "yes or no", which offers both."""
    lowered = text.lower()
    if "yes" not in lowered and "here's" not in lowered:
        return text
    return _UNDECIDED.sub(" ", text.replace("here's", "here is"))


def _would_be(text: str, statement: re.Match[str]) -> bool:
    """Whether a statement is only what the answer would be under a condition ("if it were broken, the answer would be yes")."""
    if "would" not in statement[0].lower() and "should" not in statement[0].lower():
        return False
    after = text[statement.end() : statement.end() + 12].lower()
    return _IF.search(text[max(0, statement.start() - 160) : statement.start()]) is not None or " if " in after


def _foreign_lead(text: str) -> str | None:
    """A word for yes or no of another language before the first comma or stop, or one in a script without blanks at the start."""
    first = re.split(r"[,.;!\n，]", text[:40], maxsplit=1)[0].strip().lower()
    if first in _FOREIGN_WORDS:
        return _FOREIGN_WORDS[first]
    return next(
        (
            kind
            for start, kind in (("没有", "no"), ("沒有", "no"), ("不是", "no"), ("是的", "yes"))
            if text.startswith(start)
        ),
        None,
    )


def _kind(match: re.Match[str]) -> str:
    return next(name for name, value in match.groupdict().items() if value)[:3].rstrip("234")
