"""Whether a response declines to judge: what it says of itself, of the image or of the question, in words of several languages.

Not finding something is no declining: "I cannot see any nodule" denies the nodule (`yes_no.py`).
"""

from __future__ import annotations

import re

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

_DECLINES = re.compile(
    # what the model says of itself
    r"\b(?:i(?:'m| am)|we(?:'re| are))\s+(?:very |so |truly |really )?(?:sorry|unable|not able(?! to (?:see|find|identify"
    r"|detect) (?:any|an?)\b)|afraid)\b"
    r"|\bas an? (?:ai|large language|language|artificial)\b"
    r"|\bi (?:can not(?! (?:be (?:\w+ )?(?:sure|certain)|rule|exclude|(?:see|find|identify|detect|observe) (?:an?|any|[A-Z]"
    r"|signs?|evidence|obvious|clear)\b))"
    r"|could not(?! (?:see|find|identify|detect|observe) (?:an?|any|signs?|evidence)\b)|am not able to(?! (?:see|find"
    r"|identify|detect) (?:an?|any)\b)"
    r"|will not|would not|must decline|decline|do not have (?:the|an|any) (?:ability|capability|expertise|answer|means|image)"
    r"|do not have (?:enough|sufficient|adequate|access)|would need|need (?:more|further|additional|the))\b"
    r"|\b(?:can ?not|not able to|unable to) (?:assist|help|provide|diagnose|interpret|answer|determine|analy[sz]e|give|offer"
    r"|process|view|comply|fulfil+|access|be (?:reliably |accurately |definitively |clearly |fully )?(?:determined|answered"
    r"|assessed|evaluated|ascertained"
    r"|established|inferred|concluded|judged|decided|known|told))\b"
    r"|\b(?:sorry|apologi[sz]e)\b|\bconsult (?:a|an|your|with)\b"
    r"|\bnot (?:qualified|licensed|a doctor|a medical|a substitute)\b"
    r"|\b(?:not possible|impossible|no way|unable|not able|too \w+) to (?:\w+ly )?" + _KNOW + r"\b"
    # what it says of the image or of the question
    r"|\bwithout (?:the|an|seeing the) image\b|\bno image (?:was|is|has been)? ?(?:provided|attached|available|given|shown|included)\b"
    rf"|\b{_ASKED}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:provide|contain|include|specify|mention|state|give"
    rf"|have|say|supply|offer)\b"
    rf"|\b(?:{_ASKED}|{_SHOWN})\b[^.\n]{{0,40}}?\b(?:is|are|was|were) (?:incomplete|ambiguous|missing|too (?:blurry|dark"
    rf"|small|unclear|low|bright|noisy)"
    r"|not (?:\w+ )?(?:attached|included|good enough|sharp enough|clear enough|readable|legible|of (?:\w+ )?quality))\b"
    rf"|\b{_ASKED} is (?:unclear|not clear)\b"
    rf"|\b{_SHOWN}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:allow|permit|enable|suffice)\b"
    rf"|\b(?:do|does|did) not (?:\w+ly )?(?:provide|contain|include|give|offer|have|show|present|display"
    rf"|supply)\s+(?:\w+\s+){{0,4}}?{_MATTER}"
    rf"|\b(?:do|does|did) not (?:\w+ly )?(?:state|specify|mention|say|indicate|tell|reveal|show|make clear"
    rf"|clarify)\s+(?:\w+\s+)?{_WHETHER}"
    rf"|\b(?:not|no|without|lacks?|insufficient|need|requires?)\b[^.,;\n]{{0,20}}?\b(?:enough|sufficient|adequate|further"
    rf"|additional|more)\s+(?:\w+\s+){{0,3}}?(?:{_MATTER}|views?\b)"
    rf"|\binsufficient (?:\w+ )?{_MATTER}|\b(?:is|are) (?:not (?:sufficient|enough|adequate)|insufficient) to\b"
    rf"|\black(?:s|ing)? (?:of )?(?:the |any |enough |sufficient )?(?:\w+ )?{_MATTER}|\bno (?:\w+ )?(?:information|answer"
    rf"|data|context)\b(?! of\b)"
    r"|\bplease (?:provide|share|upload|attach|supply|give|clarify|see|consult|contact)\b"
    # other languages
    r"|对不起|抱歉|无法(?:\w{0,12})?(?:判断|确定|回答|诊断|提供|识别|查看|得出)|不能(?:确定|判断)"
    r"|申し訳|判断できません|わかりません|분석할 수 없|판단할 수 없|죄송"
    r"|\b(?:es tut mir leid|tut mir leid|kann (?:ich )?(?:\w+ ){0,8}?nicht (?:beurteilen|beantworten|bestimmen|erkennen|sagen"
    r"|interpretieren)"
    r"|nicht (?:möglich|ausreichend)|lässt sich (?:\w+ ){0,6}?nicht (?:beurteilen|bestimmen|sagen|feststellen))\b"
    r"|\b(?:lo siento|no (?:puedo|es posible|se puede) (?:\w+ ){0,3}?(?:ayudar|determinar|responder|interpretar|proporcionar"
    r"|diagnosticar|analizar|decir))\b"
    r"|\b(?:désolée?|ne (?:peux|puis|peut) (?:\w+ ){0,2}?pas|impossible de|n'est pas possible de)\b"
    r"|\b(?:mi dispiace|non (?:posso|è possibile)|desculpe|não (?:posso|é possível))\b|извините|не могу|невозможно",
    re.IGNORECASE,
)
_UNDECIDED = re.compile(
    r"\b(?:not (?:sure|certain)|uncertain|inconclusive|indeterminate|insufficient|(?:hard|difficult) to (?:\w+ly )?"
    + _KNOW
    + r"|do not know"
    r"|no (?:idea|clue|comment)|(?:it is|it's|it remains|remains|is) (?:un|not )clear (?:whether|if|from|which|what)\b|unclear"
    r"|maybe|perhaps|it depends|can ?not be (?:confirmed|verified|excluded|ruled out|said)|can ?not (?:say|tell|confirm"
    r"|assess|judge|conclude|rule out|exclude)"
    r"|(?:answer|response) is not (?:yes|no))\b",
    re.IGNORECASE,
)
_HINTS = (
    *(
        "sorry",
        "afraid",
        "apolog",
        "unable",
        "able to",
        "as an ",
        "as a l",
        "can not",
        "could not",
        "will not",
        "would not",
        "declin",
    ),
    *(
        "do not",
        "does not",
        "did not",
        "need",
        "consult",
        "not a ",
        "not qual",
        "not lic",
        "possible to",
        "no way",
        "too ",
        "without",
    ),
    *(
        "incomplete",
        "ambiguous",
        "missing",
        "not ",
        "enough",
        "sufficient",
        "adequate",
        "lack",
        "information",
        "no answer",
        "no data",
    ),
    *(
        "no context",
        "no image",
        "unclear",
        "please ",
        "leid",
        "kann",
        "lässt",
        "siento",
        "puedo",
        "posible",
        "peux",
        "peut",
        "dispiace",
        "posso",
    ),
)
ENDS = 1000
"""Characters at the beginning and at the end of a response in which it may decline; in between it reasons."""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * ENDS else text[:ENDS] + "\n" + text[-ENDS:]


def declines(text: str) -> bool:
    """Whether a response declines to answer."""
    ends = _ends(text)
    lowered = ends.lower()
    return (not ends.isascii() or any(hint in lowered for hint in _HINTS)) and _DECLINES.search(ends) is not None


def is_undecided(text: str) -> bool:
    """Whether a response to a yes/no question says that it does not know which."""
    return _UNDECIDED.search(_ends(text)) is not None
