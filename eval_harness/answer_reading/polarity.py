"""Whether words of a response are meant, denied, or only supposed: the clause around them decides.

See also: which words name an option (`letters.py`, `mentions.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.plain_text import hints, says

_BOUNDARY = re.compile(
    r"[.!?](?=\s)|[;\n]|\b(?:but(?<!anything but)(?<!everything but)(?<!\ball but)|however|although|though|whereas|while)\b"
    r"|,\s*(?:and|so|the|which|it|this|that|therefore|thus|because|we|i|there|making|leaving)\b|,\s*(?=not\b|(?:answer|option"
    r"|choice)\s+\W?$)|\.{2,}|…",
    re.IGNORECASE,
)
_NEGATOR = re.compile(
    r"\b(?:no(?!\s*(?:[,:;.!–—]|-\s|wait|longer|doubt))|not(?!\s+only)|never|neither|nor|without|absence of|absent|lacks?|lack of"
    r"|rul(?:es?|ed|ing) out|exclud\w+|eliminat\w+|rather than|instead of|unlike|as opposed to|other than|except|apart from"
    r"|negative for|unlikely|less likely|least (?:likely|probable|consistent|appropriate)"
    r"|(?:anything|everything|all) but|(?:lowest|smallest) (?:likelihood|probability|chance)"
    r"|(?:last|worst|second) choice|cross(?:ed|ing)? out|(?<!no )(?<!a )doubt"
    r"|incorrect|wrong|denies|free of|against|inconsistent with|(?:other|remaining) (?:options?"
    r"|choices?|answers?)"
    r"|distractors?|differentiat\w*|distinguish\w*|mistaken for|would (?:show|have|need|require|present|appear|be expected)"
    r"|(?:more|better|likelier)\b[^.;]{0,30}?\bthan)\b|\bover\s+(?:option\s+)?$|[✗❌✘]\W*$",
    re.IGNORECASE,
)
_VERDICT = (
    r"not|n't|incorrect|wrong|unlikely|ruled out|excluded|absent|inconsistent|less|inaccurate|unrelated|inappropriate|impossible"
    r"|eliminated|irrelevant|false|improbable|implausible|out|be considered|(?:the )?(?:lowest|weakest|worst|exception)"
)
_DENIED_AFTER = re.compile(
    rf"[\"')\]}}]*(?:(?!\b(?:is|are|was|were|and|but|or|because|since|while|whereas)\b)[^.;:\n,]){{0,40}}?\s*\b(?:is|are|was"
    rf"|were|can|could|may|would|does|do|did"
    rf"|has|have|seems?|appears?)\s+"
    rf"(?:\w+\s+){{0,2}}?(?:{_VERDICT})\b"
    r"|\W{0,4}\bbut (?:this|that|it) (?:is|does|seems|appears)\s+(?:much |far |also )?(?:less|unlikely|not|improbable)\b"
    r"|\s*,?\s*which (?:is|are|was|were) (?:\w+ly )?not\b"
    r"|\s+would be (?:my|the) (?:last|least|worst|second)\b"
    r"|[^.;:\n,]{0,20}?\s*\bwould\s+(?:\w+ly\s+)?(?:show|have|appear|present|look|need|require|cause|produce|shift"
    r"|be(?!\s+(?:\w+ly\s+)?(?:the|my|best|most|correct|consistent|right)\b))\b"
    r"|[\"')\]}.:]*\s*[-:–—(]?\s*(?:incorrect|wrong|not\b(?!\s+(?:option\s+)?\(?[A-Z]\b\)?\s*(?:$|[.,;)]))"
    r"|false|unlikely|absent\b|not present|no\b(?!,)|ruled out|eliminated|excluded|✗|❌|✘|×)",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\s*\((?!\s*[A-Za-z]\s*\))[^()\n]+\)|\s*,\s*(?:which|who|whose)\b[^.;\n]{1,160}?,(?=\s*(?:does|do|is|are|was|has|can|would)\b)"
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|whether|had it|were it)\b(?!\s+(?:i|we)\s+(?:had|have|must|were forced)|\s+forced|\s+asked)|如果|假如",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?](?=\s|$)|\n")


Spans = tuple[tuple[int, int], ...]


def is_denied(text: str, start: int, end: int, own: Spans = ()) -> bool:
    """Whether the words text[start:end] are denied in their clause ("not A", "A is wrong", "unlike A"). `own`: where options stand
    before them, which deny nothing with a "no" of their text."""
    return says(text, _DENIALS) and (negated_before(text, start, own) or denied_after(text, end))


_DENIALS = hints(
    "no not never neither nor without absence absent lack rule rules ruled ruling exclude eliminate rather instead unlike unlikely"
    " opposed other except apart negative less least anything everything all but lowest smallest last worst second crossed crossing"
    " doubt incorrect wrong denies free against inconsistent remaining distractor differentiate distinguish mistaken would than over"
    " inaccurate unrelated inappropriate impossible irrelevant false improbable implausible out be weakest exception n t"
)


@lru_cache(maxsize=512)
def negated_before(text: str, start: int, own: Spans = ()) -> bool:
    before = clause_before(text, start)
    begin = start - len(before)
    found = (begin + negator.start() for negator in _NEGATOR.finditer(before))
    return any(all(not first <= place < last for first, last in own) for place in found)


@lru_cache(maxsize=512)
def denied_after(text: str, end: int) -> bool:
    if _DENIED_AFTER.match(text, end, end + 120):
        return True
    aside = _ASIDE.match(text, end, end + 300)  # "option A (smooth and brown) is incorrect", "B, which ..., does not"
    return aside is not None and _DENIED_AFTER.match(text, aside.end(), aside.end() + 120) is not None


def is_supposed(text: str, start: int) -> bool:
    """Whether a condition stands before text[start] in its sentence ("if it were thin, A would be right")."""
    return _SUPPOSED.search(sentence_before(text, start)) is not None


def sentence_before(text: str, start: int) -> str:
    """The part of the sentence or line that stands before text[start] (at most 160 characters)."""
    before = text[max(0, start - 160) : start]
    return before[max((match.end() for match in _SENTENCE.finditer(before)), default=0) :]


def is_asked(text: str, start: int) -> bool:
    """Whether the sentence that holds text[start] is a question that another follows ("Is it B? Let us see.")."""
    end = sentence_end(text, start)
    return text.startswith("?", end) and text[end + 2 : end + 3].isupper()


@lru_cache(maxsize=512)
def clause_before(text: str, start: int) -> str:
    """The part of the clause that stands before text[start] (at most 160 characters)."""
    before = text[max(0, start - 160) : start]
    return before[max((match.end() for match in _BOUNDARY.finditer(before)), default=0) :]


def sentence_end(text: str, start: int) -> int:
    """Where the sentence or line that holds text[start] ends (at most 400 characters on)."""
    stop = min(len(text), start + 400)
    match = _SENTENCE.search(text, start, stop)
    return match.start() if match else stop


_FIRST_THOUGHT = re.compile(
    r"\b(?:initially|originally|at first|previously|first (?:thought|guess|impression|glance)"
    r"|tempted|(?:might|going to) (?:think|choose|say))\b",
    re.IGNORECASE,
)


def is_past(text: str, start: int) -> bool:
    """Whether the clause before text[start] tells a first thought, which what follows may take back ("I initially chose A")."""
    return _FIRST_THOUGHT.search(clause_before(text, start)) is not None
