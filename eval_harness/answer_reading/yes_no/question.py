"""Whether a declarative response says what a yes/no question asks ("Is there a mass?" - "The image shows a large mass."), or denies it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from eval_harness.answer_reading.names import plain_words
from eval_harness.answer_reading.options import stem
from eval_harness.answer_reading.words import WIDE, beginnings, bits_of, says
from eval_harness.answer_reading.yes_no.asked import (
    KNOWN,
    PREPOSITIONS,
    SIDES,
    asked_of,
    content_of,
    finding_words,
    parts_of,
    without_generic,
    words_asked,
    words_of,
)
from eval_harness.answer_reading.yes_no.exclusive import says_several
from eval_harness.answer_reading.yes_no.spoken import FOUND

_NORMAL = stem("normal")
_IN_THE_IMAGE = re.compile(
    r"(?:(?<!\bis)(?<!\bare)(?<!\bbe) (?:shown|seen))? (?:in|on) (?:the|this) (?:(?:chest|ct|mri?|given|provided) )?"
    r"(?:image|picture|figure|scan|x-?ray|radiograph|chart|graph|diagram|photo)\b",
    re.IGNORECASE,
)
SHOWN = beginnings("image picture figure scan x xray radiograph chart graph diagram photo film ct mri slide specimen")
"""Of these `_IN_THE_IMAGE` and `ABOUT` need one."""
_UNSURE = re.compile(
    r"\b(?:if|whether|mention(?:s|ed)?|necessarily|may|might|could"
    rf"|can not(?! be {FOUND})|possib\w+|perhaps|probably not|hardly|false|incorrect|suspicio\w+|suspected"
    r"|suspect|concern\w*|un(?:clear|certain)|difficult|history|prior|previous|risk|differential|question"
    r"|should\b(?! be noted)|(?<!it )would (?!say|think|describe|call|conclude)"
    r"|(?:more|less) (?:consistent|likely|suggestive|typical|compatible)\b[^.]*\bthan"
    r"|to (?:rule out|exclude|look for|assess|evaluate|check)|conclusion about"
    r"|not (?:\w+ )?(?:confirm|indicat|suggest|mean|show)\w* that)\b",
    re.IGNORECASE,
)
_MAKES_UNSURE = (
    beginnings(
        "if whether mention necessarily may might could can possible perhaps probably hardly false incorrect suspicious suspected concern"
        " unclear uncertain difficult history prior previous risk differential question should would rule exclude look assess evaluate"
        " check conclusion"
    ).bit,
    beginnings("consistent likely suggestive typical compatible").bit | beginnings("than").bit,
    beginnings("not").bit | beginnings("that").bit,
    WIDE,
)
"""The vocabularies of which `_UNSURE` needs a word, each of one of these rows."""
HISTORY = re.compile(r"\bhistory\b", re.IGNORECASE)
"""Where a question asks for it, it is no doubt."""
IT_IS_A = re.compile(
    r"\W*(?:it (?:appears|seems) that )?(?:(?:it|this|the) ?(?:[\w-]+ ){0,6})?(?:is|are|was|shows|using|(?:appears|seems) to be)"
    r"\s+(?:not\s+)?(?:\w+ly\s+|indeed\s+)?(?:(?:an?|the)\b)?\s*",
    re.IGNORECASE,
)
_SAYS_THERE = re.compile(
    r"\b(?:there (?:is|are|seems? to be|appears? to be)|shows?|showing|reveals?|demonstrates?|depicts?|displays?|features?|contains?"
    r"|have|has|(?<!associated )(?<!compared )with|suggests?|suggestive of|consistent with|indicat\w+|evidence of"
    r"|presence of|i (?:can |do )?see)\b",
    re.IGNORECASE,
)
_IS_THERE = re.compile(rf"\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?{FOUND}\b", re.IGNORECASE)
_DEGREE = re.compile(
    r"\W*(?:an? )?(?:(?:stable|mild|moderate|severe|small|large|marked|massive|minimal|bilateral|left|right|sided|acute|diffuse|extensive"
    r"|subtle|tiny|focal|multifocal)(?:ly)?[\s-]+(?:to )?){1,4}",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?<=[.!?])\s+|\n|;|\b(?:but|however|although|though|whereas|while|(?:confirm|indicat|suggest|mean|show)\w* that)\b"
    r"|,?\s+(?=because\b)|,\s*(?=(?:as|since|and|so|which|there|the|it|this|that|a|an|therefore|thus|hence|indicating"
    r"|suggesting|meaning)\b)",
    re.IGNORECASE,
)
_NEGATES = re.compile(
    r"\b(?:neither\b[^.;]*?\bnor|no|not|unlikely|without|absent|absence|nor|neither|never|none|lacks?|lacking|free (?:of|from)|clear of"
    r"|negative|fail(?:s|ed)? to|rather than|instead of"
    r"|unlike|resolved|resolution of|(?:ruled|ruling|rules?) out|excluded?s?|excludes|cannot|n't)\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:with|and|or|has|have|shows?)\s+no\b|\bwithout\b|[,(]\s*(?:no|not|rather than|instead of|unlike)\b",
    re.IGNORECASE,
)
"""Where a sentence goes on to deny something else ("a nodule with no calcification")."""
_INSTEAD = re.compile(
    r"[,(]\s*(?:and |but )?(?:not|rather than|instead of)\s+(?:(?:in|on|at|of|from)\s+)?([^.,;()]{2,80})[).]*$",
    re.IGNORECASE,
)
"""What a statement sets aside ("a CT scan, not an MRI")."""
_SETS_ASIDE = beginnings("not rather instead")
_ABNORMAL = re.compile(r"\babnormal\b", re.IGNORECASE)
"""Asked of as the opposite of normal: "Is the liver abnormal?" - "The liver appears normal."."""
SHORT = 600
"""Characters up to which all of a response is compared with the question; of a longer one its last lines are."""
GAP = 4
"""Words that an answer may put between two words of the finding ("a mass in the right lobe of the liver")."""


def repeats(text: str, question: str) -> str | None:
    """`_repeats` of a response, or of the first sentence of a long one that takes nothing back later."""
    verdict = _repeats(text, question)
    if verdict is None and len(text) > SHORT and not _TAKES_BACK.search(text):
        return _repeats(text.partition(". ")[0][:SHORT], question)
    return verdict


_TAKES_BACK = re.compile(r"\b(?:no|not|however|but|although|though|yet|instead)\b", re.IGNORECASE)


def _repeats(text: str, question: str) -> str | None:
    """Whether a declarative response says what the question asks, in its words and their order: "Is X larger than Y?" - "X is larger
    than Y." is yes, "X is not larger than Y." no. A finding may be described further ("Is there an X in the Y?" - "There is a small X in
    the left Y."), and must be said to be there: its bare words say nothing ("A history of X."). Sentences that doubt say nothing either,
    nor do two that contradict one another."""
    question, text = asked_of(question), _end_of(text)
    if (either := _EITHER.fullmatch(question)) is not None:
        each = (f"{either['head']} {either[name]} {either['tail']}" for name in ("one", "other"))
        if any(_repeats(text, one) == "yes" for one in each):
            return "yes"
    if "likely" in question:
        text = text.replace("unlikely", "not likely")
    if _NEEDED.search(question):
        question, text = _as_needed(question), _as_needed(text)
    if "normal" in question.lower():
        if _WHOLE_NORMAL.fullmatch(question):
            return _whole_is_normal(text)
        if _ABNORMALITY.search(question) and _whole_is_normal(text) == "yes":
            return "no"
        if _ABNORMAL.search(question):
            verdict = _repeats(_ABNORMAL.sub("not normal", text), _ABNORMAL.sub("normal", question))
            return {"yes": "no", "no": "yes"}.get(verdict or "", verdict)
    subject, finding, named, wanted = parts_of(question)
    if not (1 if finding or named else 2) <= len(wanted) <= 40:
        return None
    content, core = set(content_of(text)), finding_words(question) if finding else wanted
    if not subject - KNOWN <= content or not (content.issuperset(core) or says(text, _SETS_ASIDE)):
        return None
    copula = not finding and not named and _COPULA.match(question) is not None
    turned = _IS_THE.fullmatch(question) if copula else None
    asked, sets_aside, shows = words_asked(question), says(text, _SETS_ASIDE), says(text, SHOWN)
    said: set[str] = set()
    for sentence in sure_sentences(text, question):
        if sets_aside and (other := _INSTEAD.search(sentence)):
            denied = set(without_generic(content_of(other[1])))
            if denied and denied <= set(wanted) and not set(content_of(sentence[: other.start()])) >= set(wanted):
                said.add("no")
                continue
        for clause in _clauses(_IN_THE_IMAGE.sub("", sentence) if shows else sentence):
            if turned is not None and _is_turned_round(clause, turned):
                said.add("yes")
                continue
            missing = set(wanted).difference(content_of(clause))
            if len(missing) > 1 and not (finding and set(core).issubset(content_of(clause))):
                continue
            if copula and not repeats_words(content_of(clause), wanted, 0):
                clause = _ITS_PLACE.sub(r"\1", clause)
            if not finding and (_GENERAL.match(clause) or says_several(words_of(clause), asked)):
                continue
            if copula and plain_words(_ARTICLES.sub("", clause)).count(" ") < len(wanted):
                continue  # "the left ventricle": nothing is said of it
            if finding and (other := NOT_SO.search(clause)) and stem(other[1]) not in wanted:
                continue
            verdict = _verdict(clause, wanted, finding, named)
            if not verdict and finding:
                verdict = _without_place(clause, question) or verdict
            if verdict is not None:
                said.add(verdict)
            elif not finding and _replaces_one(content_of(clause), wanted):
                said.add("")
    return said.pop() if len(said) == 1 and said != {""} else None


_EITHER = re.compile(
    rf"(?P<head>\W*(?:is|are) there(?: any| an?)?) (?P<one>[^?,]+?) or (?:an? )?(?P<other>[^?,]+?)(?P<tail>(?: {FOUND})?\W*)",
    re.IGNORECASE,
)
"""A question about either of two findings."""
_NEEDED = re.compile(
    r"\b(?:needed|required|necessary|recommended|warranted|advised|advisable|indicated)\b(?=\W*$|\W*[.,;]|\W+(?:for|to|at)\b)",
    re.IGNORECASE,
)
"""Words that are one where a question asks whether something has to be done."""


def _as_needed(text: str) -> str:
    text = _NO_NEED.sub(r"\1 is not needed", text.replace("unnecessary", "not needed"))
    return _FURTHER.sub("further", _NEEDED.sub("needed", text))


_NO_NEED = re.compile(r"\b(?:there (?:is|was) )?no need (?:for|of) ([^.,;]+)", re.IGNORECASE)
_FURTHER = re.compile(r"\b(?:additional|any further|more)\b", re.IGNORECASE)
_IS_THE = re.compile(r"\W*is (.+?) the (.+?)\W*", re.IGNORECASE)
_IDENTITY = re.compile(r"\W*the (.+?) is (.+?)\W*", re.IGNORECASE)
_ITS_PLACE = re.compile(
    r"^(\W*(?:the|this|these) (?:\w+ ){1,3}?)(?:in|on|of|within) (?:the|this) [\w-]+(?: [\w-]+)? (?=(?:is|are|appears?|looks?)\b)",
    re.IGNORECASE,
)
"""Where the subject of a sentence is ("The cyst in the kidney is half full.")."""


def _is_turned_round(clause: str, asked: re.Match[str]) -> bool:
    """Whether a clause turns the question round ("The Y is X." to "Is X the Y?")."""
    said = _IDENTITY.fullmatch(clause)
    return said is not None and [*map(content_of, said.groups()[::-1])] == [*map(content_of, asked.groups())]


_GENERAL = re.compile(r"\W*(?:most|some|many|such)\b", re.IGNORECASE)
_COPULA = re.compile(r"\W*(?:is|are|was|were)\b", re.IGNORECASE)
_ARTICLES = re.compile(r"\b(?:the|an?|this|these)\b", re.IGNORECASE)


def clauses_of(text: str, question: str) -> Iterator[str]:
    """The clauses of a response, of a long one those of its end, without sentences that doubt or ask."""
    for sentence in sure_sentences(_end_of(text), question):
        yield from _clauses(sentence)


@lru_cache(maxsize=16)
def _clauses(sentence: str) -> list[str]:
    return _CLAUSE.split(sentence)


@lru_cache(maxsize=4)
def sure_sentences(text: str, question: str) -> tuple[str, ...]:
    """The sentences that neither doubt nor ask."""
    sentences = SENTENCES.split(text)
    if any(bits_of(text) & row == row for row in _MAKES_UNSURE):
        return tuple(sentence for sentence in sentences if not is_doubted(sentence, question))
    return tuple(sentence for sentence in sentences if not sentence.rstrip().endswith("?"))


def is_doubted(sentence: str, question: str) -> bool:
    """Whether a sentence doubts or asks, or speaks of the history or of what would be where that is not asked for."""
    for asked_for in _asked_for(question):
        sentence = asked_for.sub("", sentence)
    return sentence.rstrip().endswith("?") or _UNSURE.search(sentence) is not None


@lru_cache(maxsize=4096)
def _asked_for(question: str) -> tuple[re.Pattern[str], ...]:
    """What is no doubt where a question asks for it."""
    return tuple(words for words in (HISTORY, _WOULD, _PRIOR) if words.search(question))


_PRIOR = re.compile(r"\b(?:prior|previous)\b", re.IGNORECASE)
_WOULD = re.compile(r"\bwould\b", re.IGNORECASE)


def _end_of(text: str) -> str:
    return text if len(text) <= SHORT else text[-SHORT:].partition("\n" if "\n" in text[-SHORT:] else ". ")[2]


@lru_cache(maxsize=16)
def is_negation(clause: str) -> bool:
    return _NEGATES.search(clause) is not None


def _replaces_one(said: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether a clause says another word in place of one of those asked for ("it is now red" where "it is now blue" is asked)."""
    return 2 < len(wanted) <= len(said) <= len(wanted) + 1 and len(set(wanted) - set(said)) == 1


NOT_SO = re.compile(
    r"\bnot (?:\w+ly )?(normal|abnormal|enlarged|dilated|thickened|widened|swollen|inflamed|displaced|large|small)\b"
)
"""What is denied of a thing that is there."""
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n")


def _whole_is_normal(text: str) -> str | None:
    """Whether a response calls the image as a whole normal, or not normal."""
    found = _WHOLE_IS_NORMAL.search(text)
    return None if found is None else "no" if found["not"] else "yes"


_WHOLE = r"(?:the |this |an? )?(?:[\w-]+ ){0,2}?(?:image|picture|x-?ray|radiograph|scan|film|study|ct|mri|it)"
_WHOLE_NORMAL = re.compile(
    rf"(?:is|does) {_WHOLE} (?:look |appear |seem )?(?:to be )?normal\W*|is (?:this|it) an? normal {_WHOLE}\W*",
    re.IGNORECASE,
)
_WHOLE_IS_NORMAL = re.compile(
    rf"(?:^|[.!?]\s+)\W*(?:it (?:appears|seems) that )?{_WHOLE} (?:is|appears?|looks?|seems?) (?:to be |described as |considered )?"
    r"(?P<not>not )?(?:\w+ly |an? )?normal\b(?! (?:variant|size|sized|limit))",
    re.IGNORECASE,
)
_ABNORMALITY = re.compile(r"\babnormal(?:ity|ities)?\b", re.IGNORECASE)


def _verdict(clause: str, wanted: tuple[str, ...], exists: bool, named: bool) -> str | None:
    """What a clause says of the wanted words; empty where it names them and nobody can say how it means them."""
    gap = GAP if exists else 0
    if not set(wanted).issubset(content_of(clause)):
        return None
    if not repeats_words(content_of(clause), wanted, gap):
        if named and _SUBJECT_IS.match(clause) and content_of(clause)[: len(wanted)] == wanted[-1:] + wanted[:-1]:
            return "yes"  # "The rhythm is regular." to "Is this a regular rhythm?"
        if exists or named or len(wanted) > 5:
            return None
        whole, clause = clause, _ADVERB.sub("", clause)
        said = tuple(word for word in content_of(clause) if word in wanted or word not in SIDES)
        if not repeats_words(said, wanted, 0):  # "an enlarged liver"
            said, turned = content_of(clause), wanted[-1:] + wanted[:-1]
            of = " of " in clause and repeats_words(tuple(word for word in said if word != "of"), turned, 1)
            if not (of or repeats_words(said, turned, 0)) or not (_SAYS_THERE if of else _SAYS_A).search(whole):
                return None
            return {0: "yes", 1: "no"}.get(len(_NEGATES.findall(whole)), "")
    own = _own_part(clause, wanted, gap)
    negations = sum(
        negator not in _ASKED_TOO or stem(negator) not in wanted for negator in _NEGATES.findall(own.lower())
    )
    if negations:
        exact = repeats_words(content_of(clause), wanted, 0)
        return "no" if negations == 1 and "not" not in wanted and exact else ""
    if named:
        start = IT_IS_A.match(own)
        if start and _NORMAL in wanted and not KNOWN.union(wanted).issuperset(content_of(start[0])):
            return ""  # "the left lung is normal" of the image
        if _SUBJECT_IS.match(own) and not _INDEFINITE.search(own):
            return "yes"  # "The rhythm is regular." to "Is this rhythm regular?"
        return "yes" if start and repeats_words(content_of(own[start.end() :])[: len(wanted) + 2], wanted, 0) else ""
    return "yes" if not exists or _says_there(own, wanted) else None


_SUBJECT_IS = re.compile(
    r"\W*(?:the|this) (?!image|picture|scan)\w+(?: \w+){0,2}? (?:is|appears to be|appears|looks) (?!an?\b)",
    re.IGNORECASE,
)
_INDEFINITE = re.compile(r"\b(?:is|appears) (?:to be )?an?\b", re.IGNORECASE)
_ASKED_TOO = frozenset({"resolved", "without", "negative", "absent"})
"""Negators that deny nothing where the question has them."""


def _without_place(clause: str, question: str) -> str | None:
    """What a clause says of the finding alone, without where it is or where elsewhere in the clause ("The left lung shows a nodule." to
    "Is there a nodule in the left lung?"): nothing where it names another place, or describes the finding in words of unknown meaning."""
    core = finding_words(question)
    said = content_of(_ADVERB.sub("", clause)) if set(core).issubset(content_of(clause)) else ()
    start = (
        next((at for at in range(len(said) - len(core) + 1) if said[at : at + len(core)] == core), -1) if core else -1
    )
    if start < 0:
        return None
    known = KNOWN.union(content_of(question))
    after = said[start + len(core) :]
    place = next((at for at, word in enumerate(after) if word in PREPOSITIONS), len(after))
    if not (known.issuperset(said[:start]) and known.issuperset(after[place:])):
        return None
    negations = len(_NEGATES.findall(_own_part(clause, core, 0)))
    if negations:
        return "no" if negations == 1 else ""
    is_so = not after and len(core) == 1 and place_said(question, said[:start]) and _IS_SO.search(clause)
    return "yes" if is_so or _says_there(clause, core) or _ASSERTS.search(clause) else None


def place_said(question: str, said: tuple[str, ...]) -> bool:
    """Whether words are those of the place that a question asks for."""
    place = set(content_of(question)) - PREPOSITIONS - KNOWN - set(finding_words(question))
    return bool(place) and place <= set(said)


_IS_SO = re.compile(r"\b(?:is|are|appears?|looks?)\s+(?:\w+ly\s+)?\w+(?:ed|en|ic|ous|al|ent)\W*$", re.IGNORECASE)
"""A finding as what its place is ("The aorta is calcified." to "Is there calcification in the aorta?")."""
_ASSERTS = re.compile(
    r"\b(?:positive for|(?:is|are) an? (?:clear |typical )?(?:case|example) of|diagnosed with)\b", re.IGNORECASE
)
_ADVERB = re.compile(
    r"\b(?:mildly|slightly|moderately|severely|significantly|markedly|clearly|visibly|obviously|grossly|diffusely|somewhat|very|quite|also"
    r"|indeed|abnormally|well|highly|extremely|now|still|specifically|definitely|definitively|apparently|currently"
    r"|clinically|actually|really|shows?|demonstrates?|displays?|exhibits?|seems?|appears?|looks?)\b",
    re.IGNORECASE,
)
_SAYS_A = re.compile(
    r"(?:there (?:is|are)|shows?|reveals?|demonstrates?|depicts?|displays?|has|have)\b|(?:this is|it is|image is) an?\b",
    re.IGNORECASE,
)


def _says_there(clause: str, wanted: tuple[str, ...]) -> bool:
    """Whether the clause says of the wanted words that they are there ("shows X", "X is seen", "mild X")."""
    if (degree := _DEGREE.match(clause)) and content_of(clause[degree.end() :])[: len(wanted)] == wanted:
        return True
    return any(
        repeats_words(content_of(clause[verb.end() :]), wanted, GAP) for verb in _SAYS_THERE.finditer(clause)
    ) or any(
        repeats_words(content_of(clause[: verb.start()] + " " + clause[verb.end() :]), wanted, GAP)
        and repeats_words(content_of(clause[: verb.start()]), wanted[:1], GAP)
        for verb in _IS_THERE.finditer(clause)
    )


def repeats_words(said: tuple[str, ...], wanted: tuple[str, ...], gap: int) -> bool:
    """Whether the wanted words are said in their order, with at most `gap` others between two of them."""
    affirmed = [word for word in said if word not in _DENYING]
    for start, word in enumerate(affirmed):
        if word != wanted[0]:
            continue
        place = start
        for want in wanted[1:]:
            place = next(
                (at for at in range(place + 1, min(len(affirmed), place + 2 + gap)) if affirmed[at] == want), -1
            )
            if place < 0:
                break
        else:
            return True
    return False


_DENYING = frozenset({"not", stem("unlikely")})


def _own_part(sentence: str, wanted: tuple[str, ...], gap: int) -> str:
    """The part of the sentence up to where it denies something else, as long as that part holds the wanted words."""
    for beside in _BESIDE.finditer(sentence):
        if repeats_words(content_of(sentence[: beside.start()]), wanted, gap):
            return sentence[: beside.start()]
    return sentence
