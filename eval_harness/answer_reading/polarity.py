"""Whether words of a response are meant, denied, or only supposed (the clause around them decides), and whether it declines to judge:
what it says of itself, of the image or of the question, in words of several languages.

Not finding something is no declining: "I cannot see any nodule" denies the nodule (`yes_no/spoken.py`).
See also: which words name an option (`letters.py`, `mentions.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from eval_harness.answer_reading.words import beginnings, is_wide, phrase, says, says_any, says_between

_BOUNDARY = re.compile(
    r"(?=[.!?;\n,…bhawsm而])(?:[.!?](?=\s)|[;\n]|\b(?:but(?<!anything but)(?<!everything but)(?<!\ball but)|however|although"
    r"|though|whereas|while|sondern|sino|mais)\b|,\s*(?:and|so|the|which|it|this|that|therefore|thus|because|we|i|there|making|leaving)\b|,\s*(?=not\b|(?:answer|option"
    r"|choice)\s+\W?$)|,\s*(?=[\u3400-\u9fff])|\.{2,}|…|而是)",
    re.IGNORECASE,
)
_NEGATOR = phrase(
    "no not never neither nor without absence absent lack rules ruling exclude eliminate rather instead unlike as other except apart"
    " negative unlikely less least anything everything all lowest smallest last worst second cross doubt incorrect wrong denies free"
    " against inconsistent remaining distractor differentiate distinguish mistaken would more better likelier than over nicht weder n kein"
    " keine keinen keiner ohne pas aucun aucune ningún ninguna",
    r"\b(?:no(?!\s*(?:[,:;.!–—]|-\s|wait|longer|doubt))|not(?!\s+only)|never|neither|nor|without|absence of|absent|lacks?|lack of"
    r"|rul(?:es?|ed|ing) out|exclud\w+|eliminat\w+|rather than|instead of|unlike|as opposed to|other than|except|apart from"
    r"|negative for|unlikely|less likely|least (?:likely|probable|consistent|appropriate)"
    r"|(?:anything|everything|all) but|(?:lowest|smallest) (?:likelihood|probability|chance)"
    r"|(?:last|worst|second) choice|cross(?:ed|ing)? out|(?<!no )(?<!a )doubt"
    r"|incorrect|wrong|denies|free of|against|inconsistent with|(?:other|remaining) (?:options?"
    r"|choices?|answers?)"
    r"|distractors?|differentiat\w*|distinguish\w*|mistaken for|would (?:show|have|need|require|present|appear|be expected)"
    r"|(?:more|better|likelier)\b[^.;]{0,30}?\bthan\b(?! (?:\w+ )+(?:in|on|at) )"
    r"|nicht|weder|kein\w*|ohne|n'est pas|pas d[eu]?|aucune?|ningún|ninguna?)\b"
    r"|\bover\s+(?:option\s+)?$|\bthan\s+(?:(?:the|an?|in|on|at|option|region)\s+)*\W?$"
    r"|[✗❌✘]\W*$|不[是选]|并非|排除",
)
_VERDICT = (
    r"not|n't|incorrect|wrong|unlikely|ruled out|excluded|absent|inconsistent|less|inaccurate|unrelated|inappropriate|impossible"
    r"|eliminated|rejected|dismissed|discarded|irrelevant|false|(?:since )?(?:cleared|resolved)|improbable|implausible|out|be considered"
    r"|(?:the )?(?:lowest|weakest|worst|exception)"
)
_DENIED_AFTER = re.compile(
    rf"[\"')\]}}]*(?:(?!\b(?:is|are|was|were|and|but|or|because|since|while|whereas)\b)[^.;:\n,]){{0,40}}?\s*\b(?:is|are|was"
    rf"|were|can|could|may|would|does|do|did"
    rf"|has|have|seems?|appears?)\s+"
    rf"(?:\w+\s+){{0,2}}?(?:{_VERDICT})\b"
    rf"|[^()\n]{{0,60}}\)\s+(?:is|are|was|were)\s+(?:\w+\s+){{0,2}}?(?:{_VERDICT})\b"
    r"|\W{0,4}\bbut (?:this|that|it) (?:is|does|seems|appears)\s+(?:much |far |also )?(?:less|unlikely|not|improbable)\b"
    r"|\s*,?\s*which (?:is|are|was|were) (?:\w+ly )?not\b"
    r"|\s+would be (?:my|the) (?:last|least|worst|second)\b"
    r"|[^.;:\n,]{0,20}?\s*\bwould\s+(?:\w+ly\s+)?(?:show|have|appear|present|look|need|require|cause|produce|shift|highlight|demonstrate|reveal|stain"
    r"|be(?!\s+(?:\w+ly\s+)?(?:the|my|best|most|correct|consistent|right)\b))\b"
    r"|[\"')\]}.:]*\s*[-:–—(]?\s*(?:incorrect|wrong|not\b(?!\s+(?:option\s+)?\(?[A-Z]\b\)?\s*(?:$|[.,;)]))"
    r"|false|unlikely|absent\b|not present|no\b(?!,)|ruled out|eliminated|excluded|✗|❌|✘|×)"
    r"|[^.;:\n,]{0,20}?\s*\bwould\s+(?:\w+\s+){0,4}?if\b(?!\s+(?:i|we|asked|forced)\b)"
    r"|\s*(?:(?:ist|est|es)\s+(?:falsch|nicht|fausse?|incorrecte?|incorrecta|falsa)|n'est pas|no es"
    r"|ne peut (?:pas )?être exclu\w*|kann nicht ausgeschlossen|no (?:se )?puede (?:ser )?descarta\w*)\b"
    r"|\s*(?:不(?:正确|对|是|符合|可能|成立)|是?错|(?:可以?|被)排除)",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\s*\((?!\s*[A-Za-z]\s*\))[^()\n]+\)|\s*,\s*(?:which|who|whose)\b[^.;\n]{1,160}?,(?=\s*(?:does|do|is|are|was|has|can|would)\b)"
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|whether(?![^.;\n]*[,:])|had it|were it)\b(?!\s+(?:i|we)\s+(?:had|have|must|were forced)|\s+forced|\s+asked)"
    r"|^\W*(?:should|were) (?:the|this|that|there|it)\b|^\W*otherwise\s*[,:]|如果|假如|要是|\b(?:wenn|falls)\b(?!\s+ich)|\bsofern\b"
    r"|\bsi (?:l[ae]s?|el|los|il|elle|on|hay|se)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?\n](?:(?<=\n)|(?=\s|$))")


Spans = tuple[tuple[int, int], ...]


def is_denied(text: str, start: int, end: int, own: Spans = ()) -> bool:
    """Whether the words text[start:end] are denied in their clause ("not A", "A is wrong", "unlike A"). `own`: where options stand
    before them, which deny nothing with a "no" of their text."""
    return negated_before(text, start, own) or denied_after(text, end)


DENIALS = beginnings(
    "not no n incorrect wrong unlikely ruled excluded absent inconsistent less inaccurate unrelated inappropriate impossible eliminated"
    " rejected dismissed discarded irrelevant cleared resolved false improbable implausible out be lowest weakest worst exception would"
    " falsch nicht fausse exclue"
)
"""Of these `_DENIED_AFTER` needs one."""


@lru_cache(maxsize=512)
def negated_before(text: str, start: int, own: Spans = ()) -> bool:
    found = [negator.start() for negator in _NEGATOR.find(text, start - 160, start)]
    begin = clause_start(text, start) if found else 0
    return any(place >= begin and all(not first <= place < last for first, last in own) for place in found)


@lru_cache(maxsize=512)
def denied_after(text: str, end: int) -> bool:
    if not says_between(text, DENIALS, end, end + 420):
        return False
    if _DENIED_AFTER.match(text, end, end + 120):
        return True
    aside = _ASIDE.match(text, end, end + 300)  # "option A (smooth and brown) is incorrect", "B, which ..., does not"
    return aside is not None and _DENIED_AFTER.match(text, aside.end(), aside.end() + 120) is not None


def is_supposed(text: str, start: int, end: int | None = None) -> bool:
    """Whether text[start:end] holds only under a condition, which stands before it in its sentence ("if it were thin, A would be right")
    or right after it ("B, if it is thin")."""
    if not (says(text, CONDITIONS) or is_wide(text)):
        return False
    if end is not None and says_between(text, CONDITIONS, end, end + 60) and _IF_AFTER.match(text, end):
        return True
    return (
        says_between(text, CONDITIONS, start - 160, start)
        and _SUPPOSED.search(sentence_before(text, start)) is not None
    )


CONDITIONS = beginnings("if unless whether had were should otherwise wenn sofern falls si")
_IF_AFTER = re.compile(
    r"[\"')\]]*(?:\s+(?:is|would be|may be|might be|could be)\s+(?:the\s+)?(?:\w+\s+)?(?:correct|right|true|best|answer|choice))?"
    r",?\s+(?:only |nur )?(?:(?:if|unless)\b(?!\s+(?:i|we|you|asked|forced)\b)|(?:wenn|falls|sofern)\b(?!\s+ich\b)"
    r"|si (?:l[ae]s?|el|los|il|elle|on|hay|se)\b)",
    re.IGNORECASE,
)


def sentence_before(text: str, start: int) -> str:
    """The part of the sentence or line that stands before text[start] (at most 160 characters)."""
    begin = max(0, start - 160)
    return text[max((match.end() for match in _SENTENCE.finditer(text, begin, start)), default=begin) : start]


def is_asked(text: str, start: int) -> bool:
    """Whether the sentence that holds text[start] is a question that another follows ("Is it B? Let us see."); in Chinese by its word."""
    if "?" not in text and "吗" not in text:
        return False
    end = sentence_end(text, start)
    return (text.startswith("?", end) and text[end + 2 : end + 3].isupper()) or text[start : start + 2].lstrip()[
        :1
    ] == "吗"


@lru_cache(maxsize=512)
def clause_start(text: str, start: int) -> int:
    """Where the clause that holds text[start] begins (at most 160 characters before)."""
    begin = max(0, start - 160)
    return max((match.end() for match in _BOUNDARY.finditer(text, begin, start)), default=begin)


def sentence_end(text: str, start: int) -> int:
    """Where the sentence or line that holds text[start] ends (at most 400 characters on)."""
    stop = min(len(text), start + 400)
    match = _SENTENCE.search(text, start, stop)
    return match.start() if match else stop


_FIRST_THOUGHT = phrase(
    "initially originally at previously first tempted might going",
    r"\b(?:initially|originally|at first|previously|first (?:thought|guess|impression|glance)"
    r"|tempted|(?:might|going to) (?:think|choose|say))\b",
)


def is_past(text: str, start: int) -> bool:
    """Whether the clause before text[start] tells a first thought, which what follows may take back ("I initially chose A")."""
    if not says(text, _FIRST_THOUGHT.first):
        return False
    return _FIRST_THOUGHT.search(text, clause_start(text, start), start) is not None


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

_NOUNS = (
    "question text passage problem prompt statement description sentence query context caption image picture photo photograph scan x xray"
    " xrays radiograph film figure graph chart diagram table data slice view study studies information frame video mri ct ultrasound"
)
"""What `_ASKED` and `_SHOWN` begin with."""

_DECLINES = tuple(
    phrase(first, pattern, needs)
    for first, needs, pattern in (
        # what the model says of itself
        (
            "i we sorry apologize apologise not",
            "sorry unable able afraid apologize qualified licensed",
            r"\b(?:i(?:'m| am)|we(?:'re| are))\s+(?:very |so |truly |really )?(?:sorry|unable"
            r"|not able(?! to (?:see|find|identify|detect) (?:any|an?)\b)|afraid)\b|\b(?:sorry|apologi[sz]e)\b"
            r"|\bnot (?:qualified|licensed)\b",
        ),
        ("as", "", r"\bas an? (?:ai|large language|language|artificial)\b"),
        (
            "i",
            "",
            r"\bi (?:can not|could not|am not able to)"
            r"(?! (?:be (?:\w+ )?(?:sure|certain)|rule|exclude"
            r"|(?:see|find|identify|detect|observe) (?:an?|any|signs?|evidence|obvious|clear)\b))\b"
            r"|\bi (?:will not|would not|must decline|decline|do not have (?:the|an|any) (?:ability|capability|expertise|answer|means"
            r"|image)|do not have (?:enough|sufficient|adequate|access)|would need|need (?:more|further|additional|the))\b",
        ),
        (
            "can cannot not unable",
            "can cannot able unable",
            r"\b(?:can ?not|not able to|unable to) (?:assist|help|provide|diagnose|interpret|answer|determine|analy[sz]e|give|offer"
            r"|process|view|comply|fulfil+|access|be (?:reliably |accurately |definitively |clearly |fully )?(?:determined|answered"
            r"|assessed|evaluated|ascertained|established|inferred|concluded|judged|decided|known|told))\b",
        ),
        (
            "not impossible no unable too",
            "possible impossible way unable able too",
            r"\b(?:not possible|impossible|no way|unable|not able|too \w+) (?:for \w+ )?to (?:\w+ly )?" + _KNOW + r"\b",
        ),
        # what it says of the image or of the question
        (
            "without no",
            "image",
            r"\bwithout (?:the|an|seeing the) image\b"
            r"|\bno image (?:was|is|has been)? ?(?:provided|attached|available|given|shown|included)\b",
        ),
        (
            _NOUNS + " do does did",
            "do does did",
            rf"\b{_ASKED}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?"
            r"(?:provide|contain|include|specify|mention|state|give|have|say|supply|offer)\b"
            rf"|\b{_SHOWN}\b[^.\n]{{0,40}}?\b(?:do|does|did) not (?:\w+ly )?(?:allow|permit|enable|suffice)\b"
            r"|\b(?:do|does|did) not (?:\w+ly )?(?:provide|contain|include|give|offer"
            r"|have(?! (?:an? |any )?(?:\w+ )?history of\b)|show|present|display|supply)"
            rf"\s+(?:\w+\s+){{0,4}}?{_MATTER}"
            r"|\b(?:do|does|did) not (?:\w+ly )?(?:state|specify|mention|say|indicate|tell|reveal|show|make clear|clarify)"
            rf"\s+(?:\w+\s+)?{_WHETHER}",
        ),
        (
            _NOUNS,
            "incomplete ambiguous missing too not unclear",
            rf"\b(?:{_ASKED}|{_SHOWN})\b[^.\n]{{0,40}}?\b(?:is|are|was|were) (?:incomplete|ambiguous|missing"
            r"|too (?:blurry|dark|small|unclear|low|bright|noisy)"
            r"|not (?:\w+ )?(?:attached|included|good enough|sharp enough|clear enough|readable|legible|of (?:\w+ )?quality))\b"
            rf"|\b{_ASKED} is (?:unclear|not (?:clear|valid|meaningful|applicable))\b",
        ),
        (
            "not no without lack insufficient need requires is are",
            "enough sufficient insufficient adequate further additional more",
            r"\b(?:not|no|without|lacks?|insufficient|need|requires?)\b[^.,;\n]{0,20}?\b(?:enough|sufficient|adequate|further"
            rf"|additional|more)\s+(?:\w+\s+){{0,3}}?(?:{_MATTER}|views?\b)"
            rf"|\binsufficient (?:\w+ )?{_MATTER}|\b(?:is|are) (?:not (?:sufficient|enough|adequate)|insufficient) (?:to|for)\b",
        ),
        (
            "lack no",
            "",
            rf"\black(?:s|ing)? (?:of )?(?:the |any |enough |sufficient )?(?:\w+ )?{_MATTER}"
            r"|\bno (?:\w+ )?(?:information|answer|data|context)\b(?! of\b)"
            r"|\bno (?:\w+ )?(?:determination|conclusion|judge?ment|assessment|diagnosis) (?:can|could) be\b",
        ),
        ("please", "", r"\bplease (?:provide|share|upload|attach|supply|give|clarify)\b"),
        # other languages
        (
            "tut kann nicht lässt",
            "leid kann nicht",
            r"\b(?:tut mir leid|kann (?:ich )?(?:\w+ ){0,8}?nicht (?:beurteilen|beantworten|bestimmen|erkennen|sagen|interpretieren)"
            r"|nicht (?:möglich|ausreichend)|lässt sich (?:\w+ ){0,6}?nicht (?:beurteilen|bestimmen|sagen|feststellen))\b",
        ),
        (
            "lo no désolé ne impossible n mi non desculpe não",
            "siento puedo posible puede peux puis peut impossible dispiace posso possibile desculpe désolé não",
            r"\blo siento\b|\bno (?:puedo|es posible|se puede) (?:\w+ ){0,3}?"
            r"(?:ayudar|determinar\w*|responder\w*|interpretar\w*|proporcionar|diagnosticar|analizar|decir\w*)\b"
            r"|\b(?:désolée?|ne (?:peux|puis|peut) (?:\w+ ){0,2}?pas|impossible de|n'est pas possible de)\b"
            r"|\b(?:mi dispiace|non (?:posso|è possibile)|desculpe|não (?:posso|é possível))\b",
        ),
        (
            "извините не невозможно",
            "",
            r"извините|не могу|невозможно"
            r"|对不起|抱歉|无法\w{0,12}?(?:判断|确定|回答|诊断|提供|识别|查看|得出)|不能(?:确定|判断)|申し訳|判断できません|わかりません"
            r"|분석할 수 없|판단할 수 없|죄송",
        ),
    )
)
"""Each with the words that it may begin with, and others of which it needs one."""
_UNDECIDED = phrase(
    "not uncertain inconclusive indeterminate insufficient hard difficult do no it remains is unclear maybe perhaps can cannot answer"
    " response",
    r"\b(?:not (?:sure|certain)|uncertain|inconclusive|indeterminate|insufficient|(?:hard|difficult) to (?:\w+ly )?"
    + _KNOW
    + r"|do not know"
    r"|no (?:idea|clue|comment)|(?:it is|it remains|remains|is) (?:un|not )clear (?:whether|if|from|which|what)\b|unclear"
    r"|maybe|perhaps|it depends|can ?not be (?:confirmed|verified|excluded|ruled out|said)|can ?not (?:say|tell|confirm"
    r"|assess|judge|conclude|rule out|exclude)"
    r"|(?:answer|response) is not (?:yes|no))\b",
)
ENDS = 1000
"""Characters at the beginning and at the end of a response in which it may decline; in between it reasons."""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * ENDS else text[:ENDS] + "\n" + text[-ENDS:]


@lru_cache(maxsize=16)
def declines(text: str) -> bool:
    """Whether a response declines to answer."""
    return says_any(_ends(text), _DECLINES)


_DISCLAIMS = phrase(
    "consult please not",
    r"\bconsult (?:a|an|your|with)\b|\bplease (?:see|consult|contact)\b|\bnot (?:a doctor|a medical|a substitute)\b",
)


def disclaims(text: str) -> bool:
    """Whether a response sends to a doctor, which declines only where it says nothing else."""
    return _DISCLAIMS.search(_ends(text)) is not None


_CANNOT_KNOW = phrase(
    "do can cannot could unable not impossible insufficient",
    r"\b(?:do not know|(?:can ?not|could not|unable to|not able to|(?:not |im)possible to) (?:be )?(?:\w+ly )?"
    r"(?:determine[ds]?|say|said|tell|told|know|known|decided?|conclude[ds]?|established?|ascertain(?:ed)?|infer(?:red)?|answer(?:ed)?)"
    r"|(?:not enough|insufficient|not sufficient) (?:information|data|evidence))\b",
    "know determine say said tell told decide conclude establish ascertain infer answer information data evidence",
)


def cannot_know(text: str) -> bool:
    """Whether a short text says that the answer cannot be known."""
    return len(text) <= 200 and _CANNOT_KNOW.search(text) is not None


def is_undecided(text: str) -> bool:
    """Whether a response to a yes/no question says that it does not know which."""
    return _UNDECIDED.search(_ends(text)) is not None
