"""What a sentence says around words that may name an option: that they are there, or that they are beside something, supposed, advised,
of an earlier time, healthy, or said of another thing."""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.names import WORD
from eval_harness.answer_reading.options import STOP, OptionTexts, stem
from eval_harness.answer_reading.polarity import sentence_before
from eval_harness.answer_reading.words import asks, beginnings, is_wide, phrase, says, says_between, words_in

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
AGREES = re.compile(r"\b(?:that is|you(?:'re| are)|all)\s+$", re.IGNORECASE)
LEFT_SO = re.compile(r"\s+(?:un\w+ed|alone|behind|out|over|in place)\b", re.IGNORECASE)
"""After "left" where it is no side ("was left untreated")."""
SHORT = 8
"""Words up to which a response is an answer rather than prose, its options' words not counted: whatever option it names, it means."""


def in_condition(text: str, start: int) -> bool:
    """Whether what stands at text[start] is part of a condition that its sentence begins with ("If the pike died, ...")."""
    return (
        says_between(text, _CONDITIONS, start - 160, start)
        and _IN_CONDITION.search(text, max(0, start - 160), start) is not None
    )


_CONDITIONS = beginnings("if when suppose assuming given")
_IF = r"(?:if|when|suppose|assuming|given)\b"
_IN_CONDITION = re.compile(rf"(?:^|[.!?\n]\s{{0,3}}){_IF}[^.,;:!?\n]*$", re.IGNORECASE)
CONDITION = re.compile(rf"\W*{_IF}[^.,;\n]{{1,200}},", re.IGNORECASE)
"""A condition that a response begins with."""


def under_condition(text: str, start: int, end: int, question: str | None) -> bool:
    """Whether text[start:end] is said under a condition that the question does not make ("If it is chronic, consider X")."""
    if question is None or not says_between(text, _MAKES_CONDITION, start - 160, end + 60):
        return False
    condition = _UNDER_CONDITION.match(sentence_before(text, start)) or _IF_AFTER.match(text, end)
    if condition is None:
        return False
    said = stems_that_count(condition[1])
    return bool(said) and 2 * len(said & stems_asked(question)) < len(said)


def stems_that_count(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in WORD.findall(text.lower()) if len(word) > 2 and word not in STOP)


@lru_cache(maxsize=4096)
def stems_asked(question: str) -> frozenset[str]:
    return frozenset(stem(word) for word in WORD.findall(question.lower()))


_MAKES_CONDITION = beginnings("if unless depending should")
_MY_CONDITION = r"(?!\s+(?:i|we|you|one|asked|forced|any|so|not|there is only)\b)"
_UNDER_CONDITION = re.compile(
    rf"\W*(?:if|unless|should|depending on)\b{_MY_CONDITION}([^,.;:\n]{{3,120}}),", re.IGNORECASE
)
_IF_AFTER = re.compile(rf"\W{{0,3}}\s(?:if|unless)\b{_MY_CONDITION}([^,.;:\n]{{3,120}})", re.IGNORECASE)
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


def normal_part(text: str, start: int, end: int, before: str) -> bool:
    return text[start:end].lower() == "normal" and bool(_NORMAL_PART.match(text, end) or _PART_IS_NORMAL.search(before))


def is_moved(before: str, question: str | None) -> re.Match[str] | None:
    """Where something is said to have moved to what follows ("a shift to the left"), of which the question does not ask."""
    return _MOVED_TO.search(before) if question is not None and not asks(question, _MOVED) else None


_MOVED = re.compile(r"\b(?:shift|displac|deviat|push|rotat|tilt|point|mov)", re.IGNORECASE)
_MOVED_TO = re.compile(
    r"\b(?:shift\w*|displac\w+|deviat\w+|pushed) (?:to|into|towards?) (?:the )?(?:left |right )?$", re.IGNORECASE
)


def said_elsewhere(text: str, start: int, end: int, question: str | None) -> bool:
    """Whether text[start:end] is what is advised or comes next, or was earlier, of which the question does not ask."""
    if question is None:
        return False
    if (says(text, _ADVICE) or is_wide(text)) and not asks(question, _ASKS_ADVICE):
        before = text[max(0, start - 60) : start]
        if _ADVISED_AFTER.match(text, end) or _ADVISED_BEFORE.search(before) or _NEXT_BEFORE.search(before):
            return True
    earlier = says_between(text, _EARLIER, end, end + 60) and _EARLIER_AFTER.match(text, end) is not None
    return earlier and not asks(question, _ASKS_EARLIER)


_ADVICE = beginnings(
    "recommend recommended advise advised warranted helpful useful necessary required considered help confirm able next see consult contact"
    " performed obtained done"
)
_EARLIER = beginnings("ago last past previous prior earlier resected removed excised")
_ASKS_ADVICE = re.compile(
    r"\b(?:recommend|advis|next|should|treat|test|manage|appropriate|best|step|indicat|need|will|refer|order|suggest|therap|would)",
    re.IGNORECASE,
)
_ADVISED_AFTER = re.compile(
    r"(?:(?! (?:is|are)\b) [\w-]+){0,4} (?:is|are|would be|may be|might be|should be|can be) (?:\w+ly )?"
    r"(?:recommended|advised|warranted|helpful|useful|necessary|required|considered)\b"
    r"|(?: [\w-]+)? should be (?:performed|obtained|done)\b"
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
    r"\b(?:previous|prior|earlier|before|past|history|ago|last|compar|chang|first|original|initial|remov|resect|excis|surg|operat)",
    re.IGNORECASE,
)
_EARLIER_AFTER = re.compile(
    r"[^.;,\n]{0,25}?\b(?:ago|last (?:year|month|week)|in the past|in (?:the|a) (?:previous|prior|earlier|last)"
    r"|on (?:the|a) (?:previous|prior)|(?:was|were|has been|have been) (?:\w+ly )?(?:resected|removed|excised))\b",
    re.IGNORECASE,
)
TOPIC_AFTER = re.compile(
    r"(?: [a-z-]+){0,2} (?:is|are) (?:usually|often|typically|commonly|generally|frequently|sometimes) (?!due|caused|seen)"
    r"|[ -](?:like|mimic\w*)\b| (?:risk|screening|incidence|prevalence|mortality|staging|awareness)\b",
    re.IGNORECASE,
)
"""What makes an option's text a word of another thing ("melanoma-like", "melanoma risk")."""
PART_OF = re.compile(
    r"\b(?:veins?|arter(?:y|ies)|walls?|borders?|margins?|capsule|lumen|ducts?|surface|edge|hilum|tail|tip|root|branch)"
    r" (?:of|to) (?:the )?$",
    re.IGNORECASE,
)
_SOUND = beginnings("intact preserved unremarkable spared healthy normal clear")


def unharmed(text: str, end: int) -> bool:
    """Whether the clause goes on to call healthy what ends at text[end]."""
    return says_between(text, _SOUND, end, end + 120) and _UNHARMED.match(text, end) is not None


_UNHARMED = re.compile(
    r"[^.;\n,]{0,40}?\b(?:is|are|appears?|remains?|looks?)\s+(?:\w+\s+)?(?:intact|preserved|unremarkable|spared|healthy|normal|clear)\b",
    re.IGNORECASE,
)


def is_of_another(before: str, texts: OptionTexts, question: str | None) -> bool:
    """Whether a clause says what follows it of a thing that neither an option nor the question names ("the mediastinum is")."""
    said = _OF_A_THING.search(before)
    if said is None:
        return False
    thing = stem(said[1].lower())
    return thing not in _ANY_THING and thing not in texts.known and thing not in stems_asked(question or "")


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
