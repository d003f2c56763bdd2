"""Whether a response declines to judge: what it says of itself, of the image or of the question, in words of several languages.

Not finding something is no declining: "I cannot see any nodule" denies the nodule (`yes_no.py`).
"""

from __future__ import annotations

import re

from eval_harness.answer_reading.plain_text import hints, says

_KNOW = (
    r"(?:determin\w+|sa(?:y|id)|tell|told|know|known|answer\w*|assess\w*|judg\w+|conclud\w+|decid\w+|establish\w*|confirm\w*"
    r"|ascertain\w*|infer\w*"
    r"|evaluat\w+|verif\w+|specif\w+|interpret\w*|diagnos\w+|distinguish\w*|estimat\w+|comment|choose|chosen|answered"
    r"|make (?:a|any|the) \w+)"
)
_ASKED = r"(?:question|text|passage|problem|prompt|statement|description|sentence|query|context|caption)"
_SHOWN = (
    r"(?:images?|pictures?|photos?|photographs?|scans?|x-?rays?|radiographs?|films?|figures?|graphs?|charts?|diagrams?|tables?|data"
    r"|slices?|views?|stud(?:y|ies)|information|frames?|videos?|mri|ct|ultrasound)"
)
_WHETHER = r"(?:whether|if|which|what|how|where|when|who)\b"
_MATTER = r"(?:information|details?|context|data|labels?|clues?|history|resolution|quality|means|basis)\b"

_DECLINES = tuple(
    (hints(words), re.compile(pattern))
    for words, pattern in (
        # what the model says of itself
        (
            "sorry unable able afraid apologize qualified licensed",
            r"\b(?:i(?:'m| am)|we(?:'re| are))\s+(?:very |so |truly |really )?(?:sorry|unable"
            r"|not able(?! to (?:see|find|identify|detect) (?:any|an?)\b)|afraid)\b|\b(?:sorry|apologi[sz]e)\b"
            r"|\bnot (?:qualified|licensed)\b",
        ),
        ("as", r"\bas an? (?:ai|large language|language|artificial)\b"),
        (
            "i",
            r"\bi (?:can not|could not|am not able to)"
            r"(?! (?:be (?:\w+ )?(?:sure|certain)|rule|exclude"
            r"|(?:see|find|identify|detect|observe) (?:an?|any|signs?|evidence|obvious|clear)\b))\b"
            r"|\bi (?:will not|would not|must decline|decline|do not have (?:the|an|any) (?:ability|capability|expertise|answer|means"
            r"|image)|do not have (?:enough|sufficient|adequate|access)|would need|need (?:more|further|additional|the))\b",
        ),
        (
            "can not able unable",
            r"\b(?:can ?not|not able to|unable to) (?:assist|help|provide|diagnose|interpret|answer|determine|analy[sz]e|give|offer"
            r"|process|view|comply|fulfil+|access|be (?:reliably |accurately |definitively |clearly |fully )?(?:determined|answered"
            r"|assessed|evaluated|ascertained|established|inferred|concluded|judged|decided|known|told))\b",
        ),
        (
            "possible impossible way unable able too",
            r"\b(?:not possible|impossible|no way|unable|not able|too \w+) (?:for \w+ )?to (?:\w+ly )?" + _KNOW + r"\b",
        ),
        # what it says of the image or of the question
        (
            "image",
            r"\bwithout (?:the|an|seeing the) image\b"
            r"|\bno image (?:was|is|has been)? ?(?:provided|attached|available|given|shown|included)\b",
        ),
        (
            "do does did",
            rf"\b{_ASKED}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?"
            r"(?:provide|contain|include|specify|mention|state|give|have|say|supply|offer)\b"
            rf"|\b{_SHOWN}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:allow|permit|enable|suffice)\b"
            r"|\b(?:do|does|did) not (?:\w+ly )?(?:provide|contain|include|give|offer|have|show|present|display|supply)"
            rf"\s+(?:\w+\s+){{0,4}}?{_MATTER}"
            r"|\b(?:do|does|did) not (?:\w+ly )?(?:state|specify|mention|say|indicate|tell|reveal|show|make clear|clarify)"
            rf"\s+(?:\w+\s+)?{_WHETHER}",
        ),
        (
            "incomplete ambiguous missing too not unclear",
            rf"\b(?:{_ASKED}|{_SHOWN})\b[^.\n]{{0,40}}?\b(?:is|are|was|were) (?:incomplete|ambiguous|missing"
            r"|too (?:blurry|dark|small|unclear|low|bright|noisy)"
            r"|not (?:\w+ )?(?:attached|included|good enough|sharp enough|clear enough|readable|legible|of (?:\w+ )?quality))\b"
            rf"|\b{_ASKED} is (?:unclear|not clear)\b",
        ),
        (
            "enough sufficient insufficient adequate further additional more",
            r"\b(?:not|no|without|lacks?|insufficient|need|requires?)\b[^.,;\n]{0,20}?\b(?:enough|sufficient|adequate|further"
            rf"|additional|more)\s+(?:\w+\s+){{0,3}}?(?:{_MATTER}|views?\b)"
            rf"|\binsufficient (?:\w+ )?{_MATTER}|\b(?:is|are) (?:not (?:sufficient|enough|adequate)|insufficient) (?:to|for)\b",
        ),
        (
            "lack no",
            rf"\black(?:s|ing)? (?:of )?(?:the |any |enough |sufficient )?(?:\w+ )?{_MATTER}"
            r"|\bno (?:\w+ )?(?:information|answer|data|context)\b(?! of\b)"
            r"|\bno (?:\w+ )?(?:determination|conclusion|judge?ment|assessment|diagnosis) (?:can|could) be\b",
        ),
        ("please", r"\bplease (?:provide|share|upload|attach|supply|give|clarify)\b"),
        # other languages
        (
            "leid kann nicht",
            r"\b(?:tut mir leid|kann (?:ich )?(?:\w+ ){0,8}?nicht (?:beurteilen|beantworten|bestimmen|erkennen|sagen|interpretieren)"
            r"|nicht (?:möglich|ausreichend)|lässt sich (?:\w+ ){0,6}?nicht (?:beurteilen|bestimmen|sagen|feststellen))\b",
        ),
        (
            "siento puedo posible puede peux puis peut impossible dispiace posso possibile desculpe",
            r"\blo siento\b|\bno (?:puedo|es posible|se puede) (?:\w+ ){0,3}?"
            r"(?:ayudar|determinar\w*|responder\w*|interpretar\w*|proporcionar|diagnosticar|analizar|decir\w*)\b"
            r"|\b(?:désolée?|ne (?:peux|puis|peut) (?:\w+ ){0,2}?pas|impossible de|n'est pas possible de)\b"
            r"|\b(?:mi dispiace|non (?:posso|è possibile)|desculpe|não (?:posso|é possível))\b",
        ),
        (
            "",
            r"извините|не могу|невозможно"
            r"|对不起|抱歉|无法\w{0,12}?(?:判断|确定|回答|诊断|提供|识别|查看|得出)|不能(?:确定|判断)|申し訳|判断できません|わかりません"
            r"|분석할 수 없|판단할 수 없|죄송",
        ),
    )
)
"""Patterns for texts in lower case, each with words of which it needs one."""
_UNDECIDED = re.compile(
    r"\b(?:not (?:sure|certain)|uncertain|inconclusive|indeterminate|insufficient|(?:hard|difficult) to (?:\w+ly )?"
    + _KNOW
    + r"|do not know"
    r"|no (?:idea|clue|comment)|(?:it is|it remains|remains|is) (?:un|not )clear (?:whether|if|from|which|what)\b|unclear"
    r"|maybe|perhaps|it depends|can ?not be (?:confirmed|verified|excluded|ruled out|said)|can ?not (?:say|tell|confirm"
    r"|assess|judge|conclude|rule out|exclude)"
    r"|(?:answer|response) is not (?:yes|no))\b",
    re.IGNORECASE,
)
ENDS = 1000
"""Characters at the beginning and at the end of a response in which it may decline; in between it reasons."""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * ENDS else text[:ENDS] + "\n" + text[-ENDS:]


def declines(text: str) -> bool:
    """Whether a response declines to answer."""
    ends = _ends(text)
    lowered = ends.lower()
    return any(says(ends, words) and pattern.search(lowered) for words, pattern in _DECLINES)


_DISCLAIMS = re.compile(
    r"\bconsult (?:a|an|your|with)\b|\bplease (?:see|consult|contact)\b|\bnot (?:a doctor|a medical|a substitute)\b",
    re.IGNORECASE,
)


def disclaims(text: str) -> bool:
    """Whether a response sends to a doctor, which declines only where it says nothing else."""
    ends = _ends(text)
    return says(ends, _SENDS) and _DISCLAIMS.search(ends) is not None


_SENDS = hints("consult please not")
_CANNOT_KNOW = re.compile(
    r"\b(?:do not know|(?:can ?not|could not|unable to|not able to|(?:not |im)possible to) (?:be )?(?:\w+ly )?"
    r"(?:determine[ds]?|say|said|tell|told|know|known|decided?|conclude[ds]?|established?|ascertain(?:ed)?|infer(?:red)?|answer(?:ed)?)"
    r"|(?:not enough|insufficient|not sufficient) (?:information|data|evidence))\b",
    re.IGNORECASE,
)


def cannot_know(text: str) -> bool:
    """Whether a short text says that the answer cannot be known."""
    return len(text) <= 200 and _CANNOT_KNOW.search(text) is not None


_UNDECIDED_WORDS = hints(
    "not uncertain inconclusive indeterminate insufficient to know idea clue comment unclear maybe perhaps depends can"
)


def is_undecided(text: str) -> bool:
    """Whether a response to a yes/no question says that it does not know which."""
    ends = _ends(text)
    return says(ends, _UNDECIDED_WORDS) and _UNDECIDED.search(ends) is not None
