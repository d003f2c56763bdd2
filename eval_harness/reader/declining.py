"""Detect responses that decline to answer, because of the model, the image or the question.

Several languages are covered. Not finding something is not declining: "I cannot see any nodule"
denies the nodule (`yes_no.py`).
"""

from __future__ import annotations

import re

_KNOWING_VERB = (
    r"(?:determin\w+|sa(?:y|id)|tell|told|know|known|answer\w*|assess\w*|judg\w+|conclud\w+"
    r"|decid\w+|establish\w*"
    r"|confirm\w*"
    r"|ascertain\w*|infer\w*|evaluat\w+|verif\w+|specif\w+|interpret\w*|diagnos\w+|distinguish\w*"
    r"|estimat\w+"
    r"|comment|choose|chosen"
    r"|make (?:a|any|the) \w+)"
)
_QUESTION_NOUN = r"(?:question|text|passage|problem|prompt|statement|description|sentence|query|context|caption)"
_IMAGE_NOUN = (
    r"(?:images?|pictures?|photos?|photographs?|scans?|x-?rays?|radiographs?|films?|figures?"
    r"|graphs?|charts?"
    r"|diagrams?|tables?|data"
    r"|slices?|views?|stud(?:y|ies)|information|frames?|videos?|mri|ct|ultrasound)"
)
_QUESTION_WORD = r"(?:whether|if|which|what|how|where|when|who)\b"
_INFORMATION_NOUN = r"(?:information|details?|context|data|labels?|clues?|history|resolution|quality|means|basis)\b"
_DECLINING = re.compile(
    r"\b(?=[a-z])(?:" + "|".join((
        # the model cannot or will not answer
        r"(?:i(?:'m| am)|we(?:'re| are)) (?:very |so |truly "
        r"|really )?(?:sorry,? (?:but )?i\b(?! (?:made|was"
        r"|meant))|unable"
        r"|not able(?! to (?:see|find|identify|detect) (?:any|an?)\b)|afraid i can)",
        r"(?:sorry,? (?:but )?(?:i|we) (?:can|could|am|do|will)|apologi[sz]e,? (?:but|i)"
        r"|not (?:qualified"
        r"|licensed) to)\b",
        r"as an? (?:ai|large language|language|artificial)\b",
        r"i (?:can not|could not|am not able to)(?! (?:be (?:\w+ )?(?:sure|certain)|rule|exclude"
        r"|(?:see|find|identify|detect|observe) (?:an?|any|signs?|evidence|obvious|clear)\b))\b",
        r"i (?:will not|would not|must decline|decline|do not know|do not have (?:the|an"
        r"|any) (?:ability"
        r"|capability|expertise|answer|means"
        r"|image)|do not have (?:enough|sufficient|adequate|access)|would need|need (?:more"
        r"|further|additional|the))\b",
        r"(?:can ?not|not able to|unable to) (?:assist|help|provide|diagnose|interpret|answer"
        r"|determine"
        r"|analy[sz]e|give|offer"
        r"|process|view|comply|fulfil+|access|be (?:reliably |accurately |definitively |clearly "
        r"|fully )?(?:determined|answered|provided|solved"
        r"|assessed|evaluated|ascertained|established|inferred|concluded|judged|decided|known"
        r"|told))\b",
        rf"(?:not possible|impossible|no way|unable|not able"
        rf"|too \w+) (?:for \w+ )?to (?:\w+ly )?{_KNOWING_VERB}\b",
        # the image or the question does not suffice
        r"without (?:the|an|seeing the) image\b|no image (?:was|is|has been)? ?(?:provided"
        r"|attached|available"
        r"|given|shown|included)\b",
        rf"{_QUESTION_NOUN}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:provide|contain"
        rf"|include|specify|mention"
        rf"|state|give|have|say"
        r"|supply|offer)\b",
        rf"{_IMAGE_NOUN}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:allow|permit|enable"
        rf"|suffice)\b",
        r"(?:do|does|did) not (?:\w+ly )?(?:provide|contain|include|give|offer|have(?! (?:an? "
        r"|any )?(?:\w+ )?history of\b)|show|present"
        rf"|display|supply)\s+(?:\w+\s+){{0,4}}?{_INFORMATION_NOUN}",
        rf"(?:do|does|did) not (?:\w+ly )?(?:state|specify|mention|say|indicate|tell|reveal|show"
        rf"|make clear"
        rf"|clarify)\s+(?:\w+\s+)?{_QUESTION_WORD}",
        rf"(?:{_QUESTION_NOUN}|{_IMAGE_NOUN})\b[^.\n]{{0,40}}?\b(?:is|are|was|were) (?:incomplete"
        rf"|ambiguous|missing"
        r"|too (?:blurry|dark|small|unclear|low|bright|noisy)"
        r"|not (?:\w+ )?(?:attached|included|good enough|sharp enough|clear enough|readable|legible"
        r"|of (?:\w+ )?quality))\b",
        rf"{_QUESTION_NOUN} is (?:unclear|not (?:clear|valid|meaningful|applicable))\b",
        r"(?:not|no|without|lacks?|insufficient|need|requires?)\b[^.,;\n]{0,20}?\b(?:enough"
        r"|sufficient|adequate"
        r"|further|additional|more)\s+"
        rf"(?:\w+\s+){{0,3}}?(?:{_INFORMATION_NOUN}|views?\b)",
        rf"insufficient (?:\w+ )?{_INFORMATION_NOUN}|(?:is|are) (?:not (?:sufficient|enough"
        rf"|adequate)"
        rf"|insufficient) (?:to|for)\b",
        rf"lack(?:s|ing)? (?:of )?(?:the |any |enough |sufficient )?(?:\w+ )?{_INFORMATION_NOUN}",
        r"no (?:\w+ )?(?:information|answer|data|context)\b(?! of\b)|no (?:\w+ )?(?:determination"
        r"|conclusion"
        r"|judge?ment|assessment"
        r"|diagnosis) (?:can|could) be\b",
        r"please (?:provide|share|upload|attach|supply|give|clarify)\b",
        # in other languages
        r"tut mir leid\b|kann (?:ich )?(?:\w+ ){0,8}?nicht (?:beurteilen|beantworten|bestimmen"
        r"|erkennen|sagen"
        r"|interpretieren)\b"
        r"|nicht (?:möglich|ausreichend)\b|lässt sich (?:\w+ ){0,6}?nicht (?:beurteilen|bestimmen"
        r"|sagen"
        r"|feststellen)\b",
        r"lo siento\b|no (?:puedo|es posible|se puede) (?:\w+ ){0,3}?"
        r"(?:ayudar|determinar\w*|responder\w*|interpretar\w*|proporcionar|diagnosticar|analizar"
        r"|decir\w*)\b",
        r"(?:désolée?|ne (?:peux|puis|peut) (?:\w+ ){0,2}?pas|impossible de|n'est pas possible de"
        r"|mi dispiace"
        r"|non (?:posso|è possibile)"
        r"|desculpe|não (?:posso|é possível))\b",
    )) + ")"
    r"|извините|не могу|невозможно|对不起|抱歉|无法\w{0,12}?(?:判断|确定|回答|诊断|提供|识别|查看|得出)"
    r"|不能(?:确定|判断)|申し訳|判断できません"
    r"|わかりません|분석할 수 없|판단할 수 없|죄송"
)  # fmt: skip
_UNDECIDED = re.compile(
    rf"\b(?:not (?:sure|certain)|uncertain|inconclusive|indeterminate|insufficient|(?:hard"
    rf"|difficult) to (?:\w+ly )?{_KNOWING_VERB}|do not know"
    r"|no (?:idea|clue|comment)|(?:it is|it remains|remains|is) (?:un|not )clear (?:whether|if"
    r"|from|which|what)\b"
    r"|unclear"
    r"|maybe|perhaps|it depends|can ?not be (?:confirmed|verified|excluded|ruled out|said)"
    r"|can ?not (?:say|tell|confirm"
    r"|assess|judge|conclude|rule out|exclude)|(?:answer|response) is not (?:yes|no))\b"
)
_UNKNOWABLE = re.compile(
    r"\b(?:do not know|(?:can ?not|could not|unable to|not able to|(?:not "
    r"|im)possible to) (?:be )?(?:\w+ly )?"
    r"(?:determine[ds]?|say|said|tell|told|know|known|decided?|conclude[ds]?|established?"
    r"|ascertain(?:ed)?"
    r"|infer(?:red)?|answer(?:ed)?)"
    r"|(?:not enough|insufficient|not sufficient) (?:information|data|evidence))\b"
)
MEDICAL_CAVEAT = re.compile(
    r"(?:(?<=[.!?\n])\s+|^\W*)(?:however,? |(?:while|although|though) )?(?:as an? (?:ai"
    r"|artificial|language)[^.,;\n]{0,40}?,? )?"
    r"i (?:can ?not|am not able to|am unable to|do not) (?:(?:provide|give|offer"
    r"|make) )?(?:you )?(?:an? |any )?(?:\w+ ){0,2}?"
    r"(?:diagnose|diagnosis|(?:medical|professional) (?:advice|opinion))\b[^.,;\n]{0,60}(?:$"
    r"|[.,;\n])\s*(?:but |however,? |that said,? )?",
    re.IGNORECASE,
)
"""A model's caveat beside an answer ("While I cannot give a diagnosis, the image shows a cyst")."""
_EDGE_LENGTH = 1000
"""Characters at each end of a response in which declining is searched; the middle is reasoning."""


def _edges(lowered: str) -> str:
    return lowered if len(lowered) <= 2 * _EDGE_LENGTH else lowered[:_EDGE_LENGTH] + "\n" + lowered[-_EDGE_LENGTH:]


def declines(lowered: str) -> bool:
    """Return True if a lower-case response declines to answer."""
    return _DECLINING.search(_edges(lowered)) is not None


def is_undecided(lowered: str) -> bool:
    """Return True if a lower-case response states that it does not know the answer."""
    return _UNDECIDED.search(_edges(lowered)) is not None


def is_unknowable(lowered: str) -> bool:
    """Return True if a short lower-case text states that the answer cannot be known."""
    return len(lowered) <= 200 and _UNKNOWABLE.search(lowered) is not None
