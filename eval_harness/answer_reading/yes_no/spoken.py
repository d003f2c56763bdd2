"""Yes or no out of a response: what it says, and what it denies or asserts without the word.

See also: whether it repeats the question (`question.py`).

Every function takes a text that has been made plain and returns `yes`, `no`, `` (both, or neither for sure) or None (nothing found).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from eval_harness.answer_reading.polarity import is_supposed
from eval_harness.answer_reading.words import beginnings, phrase, says

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
    "absolutely": "yes", "of course": "yes", "of course not": "no", "certainly not": "no", "definitely not": "no",
    "that is correct": "yes", "that is not correct": "no", "that is incorrect": "no",
    "absolutely not": "no", "sure": "yes", "certainly": "yes", "indeed": "yes", "definitely": "yes",
}  # fmt: skip

_UNDECIDED = re.compile(
    r"\b(?:yes|no)\s*(?:/|or|and|nor)\s*(?:a\s+)?(?:yes|no)\b|\b(?:neither|either|both)\s+yes\b|yes-no\b|yes-or-no\b",
    re.IGNORECASE,
)
_SURELY = r"(?:(?:certainly|definitely|clearly|probably|(?:most )?likely|indeed|absolutely|simply)\s+)?"
_NOT_NO = (
    r"(?!\s+(?:puedo|se puede|es posible|sé|estoy|tengo|lo s[ée]|cuento|dispongo|está claro)\b"
    r"|\s+(?:idea|clue|information|image|answer|comment|way|doubt|one|matter|longer|problem|question|of)\b"
    r"|\s+\w+ answer\b|\s+evidence either\b|\.\s+of\b|[,.]?\s+(?:wait|hold on)\b[^.!]*[.!]?\s*(?:let me|let us|let's)"
    r"|\s+(?:\w+ )?(?:determination|conclusion|judge?ment)\b|\s+(?:\w+\s+){0,4}\w+\?"
    r"|[,.]?\s+(?:sorry,?\s+)?i (?:am (?:unable|not able)|can not (?:help|assist|determine|tell|say|answer|provide|view|interpret))\b"
    r"|[,.]?\s+(?:the|this) \w+ does not (?:provide|contain|offer|give|show|have|include|allow) (?:enough|sufficient|adequate"
    r"|a reliable|any conclusion)\b"
    r"|[,.]?\s+it (?:can not be|is not possible to) (?:determine|answer|sa[iy]|tell|assess)|\s*\.\s*\d|-)"
)
_NOT_YES = r"(?![,.!]?\s+i (?:can|could|will|would be (?:happy|glad)) (?:to )?(?:\w+ )?(?:help|assist|answer|do)\b)"
_LEAD = re.compile(
    rf"^\W{{0,20}}(?:(?:answer|response|a|final answer|the answer is|(?:it|that) is an?(?: (?:definite|clear|firm))?"
    rf"|definitely|certainly|probably|(?:most )?likely|clearly|indeed|(?:the|this) (?:image|scan|x-?ray) shows"
    rf"|absolutely)\W+)?"
    rf"(?:(?P<yes>(?:{_YES}){_NOT_YES}|(?:correct|true)(?=\s*[,.!]))|(?P<no>(?:{_NO}){_NOT_NO}|(?:incorrect|false)(?=\s*[,.!])"
    rf"|not that i (?:can|could) (?:see|tell)|(?<=probably )not|(?<=likely )not))\b(?!-)(?!\s+(?:yes|no"
    rf"|not)\b(?!\s+doubt))(?!\s+(?:only )?(?:if|when)\b)"
    rf"(?![\"']?\s+would (?:mean|imply|indicate)\b)(?!\W{{1,4}}(?:yes|no)\W*(?:$|[,.;!\n]))",
    re.IGNORECASE,
)
_STATEMENT = phrase(
    "answer response conclusion verdict",
    rf"\b(?:answer|response|conclusion|verdict)\b\W?[^.\n:=?!]{{0,80}}?(?:\s*(?:\bis\b|\bwould be\b|\bwas\b|\bshould be\b|:|="
    rf"|->))+[\s\"'(\[]*{_SURELY}"
    rf"(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b",
    f"{_YES}|{_NO}".replace("|", " "),
)
_IN_OTHER_WORDS = phrase(
    "i therefore thus hence so actually wait correction overall finally in conclusion but however",
    r"\bi(?:'d| would| will)? (?:say|answer|think|believe|choose)[\s,:\"']+(?:(?P<yes2>yes)"
    rf"|(?P<no2>no))\b(?!\s+(?!to (?:this|the|your)\b)\w)"
    rf"|\b(?:therefore|thus|hence|so|actually|wait|correction|overall|finally|in conclusion|conclusion)\b[\s,:.\"'-]*(?:(?P<yes3>yes)"
    rf"|(?P<no3>no))\b(?=\W*(?:$|[.,;!\n]))"
    rf"|\b(?:but|however)\b(?:[^.:\n]{{0,80}}:\s*|,?\s+{_SURELY})(?:(?P<yes5>yes)|(?P<no5>no))\b(?=\W*(?:$|[.,;!\n]|[-–—]\s))",
    "yes no",
)
_CALLED_TRUE = phrase(
    "the this that",
    r"\b(?:the|this|that) (?:(?:statement|claim|assertion)(?:,? \"[^\"\n]{1,200}\",?| that [^.\n]{1,200}?)? )?is "
    r"(?:(?P<yes4>true|correct)|(?P<no4>false|incorrect|not true|not correct))\b",
    "true correct false incorrect",
)
_FOREIGN_STATEMENT = phrase(
    "antwort lösung respuesta réponse risposta resposta ответ",
    r"(?:\b(?:antwort|lösung|respuesta|réponse|risposta|resposta|ответ)\b(?:\s+\w+){0,2}?|答案|答え|正解|정답)\s*(?:\b(?:ist|lautet"
    r"|es|est|è|é|is)\b|[是はは은:：-])?"
    r"\s*:?\s*[\"'«]?(?P<word>\w+)",
)
_LAST = re.compile(r"(?:[.!?\n])[\s\"'(\[]*(yes|no)[\s.!\"')\]]*$", re.IGNORECASE)
_ALONE = phrase(
    "yes no",
    r"(?:(?P<yes>yes(?!,? i (?:can|could) |['\"] would mean))"
    r"|(?P<no>no(?!['\"] (?:would mean|that)\b)(?!\.\s?\d|\.\s+of\b|[,.]?\s+(?:wait|hold on)\b)))\s*(?=$|[.!,;\n\"')\]])",
)
_BEFORE_ALONE = re.compile(r"(?:^|[.!?;\n:,\"'(\[]|\s[-–—]|->|=>|→)\s*$")
_BEGINS = (
    r"^\W{0,20}(?:(?:based on|from|in|on|according to|looking at|upon|given)\b[^.,\n]{1,80},\s*|(?:therefore|thus|so|hence|indeed),?\s+"
    r"|(?:i (?:do not )?(?:think|believe)|it (?:appears|seems)) (?:that )?)?"
)
FOUND = (
    r"(?:seen|visible|present|identified|noted|detected|found|evident|observed|shown|demonstrated"
    r"|visuali[sz]ed|apparent|appreciated|in place)"
)
_DENIES = re.compile(
    _BEGINS + r"(?:(?:i|we) (?:can |could |do |did |am |was )?(?:not )?(?:see|find|notice|observe|identify|detect) no\b"
    r"|there (?:is|are|was|were|appears? to be|seems? to be) (?:no|not)\b(?!\s+(?:doubt|denying"
    r"|mistaking|question|way|image|need|reason|answer"
    r"|information|only)\b)"
    r"|(?:the|this|that|it)\b(?:(?!\bbut\b)[^.,\n]){0,80}?\b(?:does|do|did|is|are|was|were) not\b"
    r"(?!\s+(?:un\w+|possible|necessarily|only|just|clear"
    r"|certain|enough|sufficient|known|surprising|rare|always|easy|easily|definitive|conclusive)\b)"
    r"|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?|reveals?|demonstrates?|has|have) no\b"
    rf"|no\s+(?:[\w-]+\s+){{0,6}}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?{FOUND}|no (?:evidence|sign|signs|indication) of\b"
    r"|there (?:does|do|did) not\b|(?:i|we) (?:do|did|can|could) not (?:see|find|identify|detect|observe|notice|visuali[sz]e"
    r"|appreciate|discern)"
    r" (?:an?|any|signs?|evidence|obvious|clear|definite|the (?:presence|signs?))\b"
    r"|(?:i am|we are) not able to (?:see|find|identify|detect) (?:an?|any)\b"
    r"|(?:i|we) (?:do|did) not (?:see(?! (?:the|your|an?) (?:image|picture|photo|attachment))|(?:believe"
    r"|think) (?:that )?(?:there|it|this|the))\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:is|are|was|were)\s+(?:absent|negative for|not (?:\w+ly )?{FOUND})\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:can|could) not be {FOUND}"
    r"|(?:the )?absence of\b(?![^.\n]*\b(?:suggest|indicat|mean|impl)\w*)|negative for\b)",
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
    text = _without_pairs(text)
    statements = [
        *_IN_OTHER_WORDS.last(text, len(text)),
        *_CALLED_TRUE.last(text, len(text)),
        *_STATEMENT.last(text, 40 + len(text) // 30),
    ]
    said = [(match.start(), _kind(match)) for match in statements if not is_supposed(text, match.start(), match.end())]
    if (last := _LAST.search(text, max(0, len(text) - 60))) is not None and text[: last.start()].strip():
        if {_kind(match) for match in _by_itself(text)} != {last[1].lower()}:
            return max(said)[1] if said else ""
        said.append((last.start(1), last[1].lower()))
    for match in _FOREIGN_STATEMENT.find(text):
        if (
            not is_supposed(text, match.start(), match.end())
            and (kind := _FOREIGN_WORDS.get(match["word"].lower())) is not None
        ):
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
    plain = _without_pairs(text)
    found = {_kind(match) for match in _by_itself(plain) if not is_supposed(plain, match.start())}
    return found.pop() if len(found) == 1 else "" if found or _UNDECIDED.search(text) else None


def _by_itself(text: str) -> Iterator[re.Match[str]]:
    """Yes and no between commas or stops; of a text with very many (a model in a loop) the first."""
    for match in islice(_ALONE.find(text), 40 + len(text) // 60):
        start = match.start()
        if _BEFORE_ALONE.search(text[start - 12 : start] if start > 12 else text[:start]):
            yield match


def denies(text: str) -> str | None:
    """A response that begins with a denial, without the word no: "there is no nodule", "I cannot see any"."""
    return "no" if _DENIES.match(text) and not _NO_BUT.match(text) else None


def affirms(text: str) -> str | None:
    """A response that begins with "there is", and denies nothing."""
    return "yes" if _AFFIRMS.match(text) and not _NEGATED.search(text[:300]) else None


@lru_cache(maxsize=4)
def _without_pairs(text: str) -> str:
    """Without "yes or no", which offers both."""
    if "here's" not in text and not (says(text, _YES_WORD) and says(text, _PAIRED)):
        return text
    return _UNDECIDED.sub(" ", text.replace("here's", "here is"))


_YES_WORD, _PAIRED = beginnings("yes"), beginnings("no neither either both")


def _foreign_lead(text: str) -> str | None:
    """A word for yes or no of another language before the first comma or stop, or one in a script without blanks at the start."""
    first = _STOP.split(text[:40], maxsplit=1)[0].strip().lower()
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


_STOP = re.compile(r"[,.;!\n，]")


def _kind(match: re.Match[str]) -> str:
    return str(match.lastgroup)[:3].rstrip("2345")
