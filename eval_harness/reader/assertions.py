"""Decide which option a response means by its text alone, where the sentence says that it is there.

A neighbour ("next to the liver"), a definition, a candidate that is weighed, or a number of the workings says nothing.
"""

from __future__ import annotations

import re

from eval_harness.reader.letters import Found
from eval_harness.reader.mentions import Mention, Response
from eval_harness.reader.options import STOP, normal, vocabulary, words_of
from eval_harness.reader.statements import denied, in_condition

_ASSERTS = re.compile(
    r"\b(?:is|are|was|were|be|shows?|showing|shown|reveals?|depicts?|displays?|demonstrates?|illustrates?"
    r"|represents?|indicates?"
    r"|indicative of|suggests?|suggestive of|consistent with|compatible with|appears?|looks?|estimates?|zeigt"
    r"|zeigen|sieht|spricht für|montre|évoque|muestra|mostra|sugiere|likely|probably"
    r"|see|evidence of"
    r"|presence of|diagnos\w+|corresponds? to|characteristic of|typical of|contains?|has|have|there|matches"
    r"|choose|select|think|believe"
    r"|guess|leaning towards?|involv(?:es|ing)|affects|belongs? to|will|with|visible|highlights?|means?"
    r"|expect(?:s|ed)?|count(?:ed)?"
    r"|identif\w+ as|had|favou?rs?|fits?|lies|located|points? to|leaves|leaving|conclude that|see that)\b"
    r"|=\s*$|(?:显示|提示|表现为|考虑为?|诊断为?|符合|存在|可见|属于|是|为|有|选|答案)[了的\s::\"“]*$"
)
_SEEN_AFTER = re.compile(
    r"(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,60}?\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?(?:seen|visible"
    r"|present|shown|noted"
    r"|evident|demonstrated|observed|depicted|displayed|illustrated|highlighted|marked|affected|involved|correct|right"
    r"|(?:the )?(?:correct|best|most|right|answer)|likely)\b"
    r"|(?:(?!\b(?:none|no|not|nor)\b)[^.;,\n]){0,40}?\b(?:corresponds?|matche?s?|aligns?) (?:best |closely "
    r"|most \w+ )?(?:to|with|the)\b"
)
_BESIDE = re.compile(
    r"\b(?:at least|at most|up to|(?:more|less|higher|lower|greater) than|adjacent to|next to|near|close to"
    r"|behind|in front of|above|below|beneath|beside|surround\w*|around"
    r"|anterior to|posterior to"
    r"|lateral to|medial to|superior to|inferior to|abut\w+|compress\w+|supplies|drains?|mimic\w*|confused with"
    r"|treated (?:for|with)"
    r"|history of|compared (?:to|with)|risk (?:of|for)|screen\w* for|recovered from|treat\w+ (?:of choice )?(?:of"
    r"|for)|connected to"
    r"|attached to|away from|distal to|proximal to|on top of|combined with|sequel\w+ (?:of|to)|complications? of"
    r"|deriv\w+ from"
    r"|(?:patients|people|persons|individuals|children|those) with|known|(?:knowledge|information) (?:about|of"
    r"|on)|symptoms of"
    r"|test(?:s|ed|ing)? for|to (?:detect|diagnose|exclude|confirm|rule out|prevent|treat)|neben|nahe|hinter"
    r"|unter(?:halb)?|über"
    r"|oberhalb|junto al?|cerca del?|à côté|près|(?:can|may|might|could)(?: also)? be (?:\w+ )?(?:associated with"
    r"|caused by|related to"
    r"|due to|seen in)|possib\w+|(?:options|choices|possibilities|candidates"
    r"|alternatives)\b(?:\s+\w+){0,3}?\s*(?:are|include|:|were)"
    r"|(?:recommend|advise)(?: an?)?)\s*(?:(?!(?:is|are|was|were)\b)\w+\s+)?(?:the\s+|a\s+"
    r"|an\s+)?(?:\w+\s+and\s+)?(?:(?:the|left|right)\s+)*$"
    r"|\b(?:whether|between(?! points?)|among|considering|question is|to (?:determine|decide|distinguish)"
    r"|(?:option|choice|statement) \W?[a-z]\W? (?:suggests|states|says|claims|proposes|mentions|describes|implies))\b"
    r"|\b(?:veins?|arter(?:y|ies)|walls?|borders?|margins?|capsule|lumen|ducts?|surface|edge|hilum|tail|tip|root"
    r"|branch) (?:of|to) (?:the )?$"
    r"|(?:建议|推荐|需要?)[^。,;，]{0,4}$"
)
"""What makes an option's text the name of a neighbour, a topic, a candidate or a part."""
_TOPIC_AFTER = re.compile(
    r"(?: [a-z-]+){0,2} (?:is|are) (?:usually|often|typically|commonly|generally|frequently|sometimes) (?!due"
    r"|caused|seen)"
    r"| (?:has|have|had) (?:since |now )?(?:resolved|cleared|healed|been (?:removed|resected|treated))\b"
    r"|[ -](?:like|mimic\w*)\b| (?:risk|screening|incidence|prevalence|mortality|staging|awareness)\b"
    r"|[^.;\n,]{0,40}?\b(?:is|are|appears?|remains?|looks?)\s+(?:\w+\s+)?(?:intact|preserved|unremarkable|spared"
    r"|healthy|normal|clear)\b"
    r"|的?(?:病?史|(?:可能性)?(?:较|更)?(?:小|低)|除外|待排)"
)
_DEFINES_AFTER = re.compile(
    r"\s+(?:is|are|was|were|refers?|means?|describes?|can|may|occurs?|arises?|originates?|usually|typically|often"
    r"|would|could|uses|requires|involves)\b"
)
_LEADS = re.compile(
    r"\W*(?:(?:therefore|thus|hence|so|overall|in conclusion|in summary|probably|likely"
    r"|most likely)\b,?\s*)?(?:(?:a|an|the)\s+)?"
)
_ENDS = re.compile(r"\W*(?:$|[.,;:!?\n])")
_CONCLUDES = re.compile(
    r"\b(?:most likely|most probabl[ey]|therefore|thus|hence|in conclusion|overall|best (?:fits|matches|described"
    r"|option)|most consistent"
    r"|final|diagnosis is|must be|has to be|leaves|leaving|conclu\w+|belongs? to|points? to)\b"
)
_CONCLUDES_LAST = re.compile(
    r"\b(?:likely|suggests?|indicates?|belongs? to|consistent with|therefore|thus|hence|so|conclu\w+|diagnosis"
    r"|appears? to be|points? to)\b"
)
_ENUMERATED = re.compile(
    r"(?::|\b(?:such as|including|like|namely|e\.g\.),?)\s+(?:[\w' -]{1,30},\s+){2,}(?:and\s+|or\s+)?(?:the\s+"
    r"|an?\s+)?$"
)
"""Before the last of several things that are named as examples."""
_BOTH = re.compile(r"\b(?:both|sowohl|à la fois)\b|(?<!por )(?<!lo )\btanto\b|既")
_NOT_BUT = re.compile(r"\bnot\b[^.;\n]{1,100}?,?\s+but\s+(?:rather\s+)?(?:(?:in|on|at|of|from|is|it is|a|an|the)\s+)*$")
_SHORT = 4
"""Words up to which a response is an answer rather than prose, its options' words not counted: whatever option it names, it means."""
_PROSE = 1000
"""Characters up to which a response is read by numbers or by single words."""


def asserted(said: Response) -> Found:
    """The option whose text the response says to be there; () for several; of several the one that a last sentence concludes."""
    mentions = [each for each in said.mentions if each.text]
    if not mentions or len(mentions) > 40:
        return None
    spaces = sum(said.text.count(" ", mention.start, mention.end) + 1 for mention in mentions[:2])
    short = len(said.text) < 120 and len(said.text.split()) - spaces < _SHORT
    final = said.sentence(len(said.text.rstrip(" .!\n")) - 1)[0]
    meant: dict[int, None] = {}
    concluded: dict[int, None] = {}
    last: dict[int, None] = {}
    both = False
    for mention in mentions:
        if mention.crossed or -2 in mention.options:
            return ()
        if not said.options.numeric.isdisjoint(mention.options) and not _is_result(said, mention, final):
            continue
        if not said.multiple and len(mention.options) == 1 and _BOTH.search(said.clause(mention.start)):
            both = True
            continue
        if _is_range(said, mention) and not denied(said, mention):
            return ()
        if _is_meant(said, mention, short):
            if len(mention.options) > 1 and not said.multiple:
                return ()
            meant.update(dict.fromkeys(mention.options))
            if _CONCLUDES.search(said.clause(mention.start)):
                concluded.update(dict.fromkeys(mention.options))
            if mention.start >= final > 0 and _CONCLUDES_LAST.search(said.clause(mention.start)):
                last.update(dict.fromkeys(mention.options))
    alive = tuple(meant)
    if len(alive) > 1 and not said.multiple:
        alive = tuple(last) if len(last) == 1 else tuple(concluded) or alive
    if len(alive) == 1 or (said.multiple and 0 < len(alive) < said.count):
        return alive
    return () if alive or both else None


_RANGE = re.compile(r"([^\W\d_]+)\s*(?:\bto\b|-|\bor\b|/|\band\b|&)\s*(?:(?:a|an|the)\s+)?$")


def _is_range(said: Response, mention: Mention) -> bool:
    """Whether a word that tells another option is joined before ("mild to moderate stenosis")."""
    before = _RANGE.search(said.lowered, max(0, mention.start - 30), mention.start)
    if before is None:
        return False
    return any(normal(before[1]) in own for place, own in enumerate(said.options.own) if place not in mention.options)


def _is_meant(said: Response, mention: Mention, short: bool) -> bool:
    clause, text = said.clause(mention.start), said.lowered
    lead = _LEADS.fullmatch(clause) is not None
    if any(option in said.options.common for option in mention.options) and not mention.letter:
        return lead and mention.start < 8 and _ENDS.match(text, mention.end) is not None
    if _NOT_BUT.search(text, max(0, mention.start - 160), mention.start):
        return True
    negative = said.options.negative.issuperset(mention.options)
    if (
        (denied(said, mention) and not negative)
        or in_condition(said, mention)
        or _ENUMERATED.search(said.before(mention.start))
    ):
        return False
    if mention.end - mention.start < 8 and _is_everyday_use(said, mention, clause):
        return False
    if _BESIDE.search(clause) or _TOPIC_AFTER.match(text, mention.end):
        return False
    if mention.letter or _ASSERTS.search(clause) or _SEEN_AFTER.match(text, mention.end, mention.end + 120):
        return True
    return (lead or short) and not _DEFINES_AFTER.match(text, mention.end)


_IMAGE = (
    r"(?:image|x-?ray|radiograph|scan|study|film|fundus|eye|tissue|exam\w*|appearance|chest|finding|result|mri|ct"
    r"|it|this|that|bild"
    r"|befund)s?"
)
_PART_IS_NORMAL = re.compile(
    rf"(?<![\w-])(?!{_IMAGE}\b)[\w-]+\s+(?:is|are|appears?|looks?|remains?|ist|sind)\s+(?:to be\s+)?(?:\w+ly\s+"
    rf"|within\s+)?$"
)
_NORMAL_PART = re.compile(rf"\s+(?!(?:{_IMAGE}|and|or|but|because|with|as|in|on|for|given|due|since)\b)[a-z]")
_AGREES, _LEFT_SO = (
    re.compile(r"\b(?:that is|you(?:'re| are)|all)\s+$"),
    re.compile(r"\s+(?:the|un\w+ed|alone|behind|out|over|in place)\b"),
)


def _is_everyday_use(said: Response, mention: Mention, clause: str) -> bool:
    """Whether "normal" is said of a part and not of the image ("a normal heart"), or "right" and "left" are no sides ("that is right")."""
    own = said.lowered[mention.start : mention.end]
    if own == "normal":
        return bool(_NORMAL_PART.match(said.lowered, mention.end) or _PART_IS_NORMAL.search(clause))
    return bool(
        (own == "right" and _AGREES.search(clause)) or (own == "left" and _LEFT_SO.match(said.lowered, mention.end))
    )


_RESULT = re.compile(
    r"(?:\b(?:is|was|are|be|equals|is (?:also )?equal to)\s+(?:about |approximately |exactly )?|=\s*)[^\w\s]?$"
)
_EQUALS = re.compile(r"(?<![<>])=")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_OF = re.compile(
    r"\b(?:ribs?|vertebra|grade|stage|segment|type|class|level|zone|figure|image|slice|series|phase|day|week"
    r"|step)s? (?:no\. ?)?$"
)


def _is_result(said: Response, mention: Mention, final: int) -> bool:
    """Whether a number is the result that ends a response, or the only number of the response or of its last sentence."""
    before = said.lowered[max(0, mention.start - 30) : mention.start]
    if _NUMBER_OF.search(before):
        return False
    if not re.search(r"\w", said.text[mention.end :]) and _RESULT.search(before):
        return True
    own = set(_NUMBER.findall(said.text[mention.start : mention.end]))
    if len(said.text) <= _PROSE and not _EQUALS.search(said.text) and own.issuperset(_NUMBER.findall(said.text)):
        return True
    return (
        mention.start >= final
        and not _EQUALS.search(said.text, final)
        and own.issuperset(_NUMBER.findall(said.text[final:]))
    )


_FRAME = re.compile(
    r"\W*(?:(?:the |my )?(?:(?:final|correct|best|right|likely|most) )*(?:answer|choice|diagnosis)(?:\s*:| is)"
    r"|(?:the|this) (?:[\w-]+ )?(?:image|picture|scan|x-?ray|radiograph|film|ct|mri) (?:shows|depicts|reveals"
    r"|demonstrates)"
    r"|(?:there|it|this) (?:is|are)(?: most)?(?: likely)?)\s"
)
"""What may stand before a few words that are all one option's ("The diagnosis is pneumonia" for "Lobar pneumonia")."""
_FILLERS = STOP | {"most", "likely", "probably", "all", "none", "above", "no", "not"}
_HEAD_ENDS = vocabulary("of in on at to with for by from and extending within involving without")
_GENERIC = frozenset({"gland", "organ", "region", "area", "view", "side", "sign", "image", "scan"})
_QUALIFIERS = vocabulary("normal abnormal healthy absent negative positive early late benign malignant")
"""Words that may not be missing: "kidney" does not name "normal kidney"."""


def by_words(said: Response) -> Found:
    """The one option of which a short response says every word that counts, in any order ("the lower lobe of the left lung"), or that holds
    every word of a response of one to four ("thyroid" for "thyroid gland")."""
    if len(said.text) > 300 or said.mentions or said.options.numeric or said.options.common:
        return None
    wanted = [frozenset(words) - STOP for words in said.options.words]
    found = _words_asserted(said, frozenset().union(*wanted))
    if found is None:
        return None
    whole = [
        place
        for place, words in enumerate(wanted)
        if words and words <= found and all(len(word) > 1 for word in words) and not said.options.negative & {place}
    ]
    whole = [place for place in whole if not any(wanted[place] < wanted[other] for other in whole)]
    if whole:
        return (whole[0],) if len(whole) == 1 else ()
    return _fragment(said)


def _words_asserted(said: Response, known: frozenset[str]) -> frozenset[str] | None:
    """The words of options that a response says and does not deny; None where one is only supposed or beside another thing."""
    found = set()
    for word, start, end in zip(said.words.words, said.words.starts, said.words.ends, strict=True):
        if word not in known:
            continue
        clause = said.clause(start)
        if _BESIDE.search(clause) or _NON.search(clause) or _TOPIC_AFTER.match(said.lowered, end):
            return None
        mention = Mention((0,), start, end, False, True)
        if in_condition(said, mention):
            return None
        if not denied(said, mention):
            found.add(word)
    return frozenset(found)


_NON = re.compile(r"\bnon[- ]$")


def _fragment(said: Response) -> Found:
    if len(said.text) > 60 or _NEGATIVE.search(said.lowered):
        return None
    frame = _FRAME.match(said.lowered)
    words = {word for word in words_of(said.text[frame.end() if frame else 0 :]).words if word not in _FILLERS}
    options = (
        [place for place, own in enumerate(said.options.words) if words <= set(own)]
        if 0 < len(words) <= 4 and all(len(word) > 1 for word in words)
        else []
    )
    if len(options) != 1:
        return None
    own = said.options.words[options[0]]
    if said.options.own[options[0]] and said.options.own[options[0]] <= words:
        return (options[0],)
    head = own[next((at for at, word in enumerate(own) if word in _HEAD_ENDS), len(own)) - 1]
    missing = set(own) - words
    shared = all(head in each for each in said.options.words)
    if (head in missing and head not in _GENERIC and not shared) or not _QUALIFIERS.isdisjoint(missing):
        return None
    return (options[0],)


_NEGATIVE = re.compile(r"\b(?:no|not|non|without)\b")
