"""Read yes or no from a response, a denial without either word, or that it declines to answer.

Every function takes a normalized text (those on declining: in lower case). The question is not
considered: "There is an effusion on the right" may affirm or deny it, and is left to a judge.

Declining is read in several languages, whether because of the model, the image or the question. Not
finding something is not declining: "I cannot see any nodule" denies the nodule.
"""

import re

from eval_harness.reader.text import lower_aligned

YES_NO_TRANSLATIONS = {
    "yes": "oui sí sì ja si да evet sim tak igen áno ano hai はい 是 是的 有 对 對 对的 예 네 نعم हाँ हां ναι כן",
    "no": "non nein nej нет hayır não nie nem iie いいえ 否 不 不是 没有 沒有 아니요 아니오 لا नहीं όχι לא",
}
"""Words for yes and no in other languages."""
_WORD_TO_ANSWER = {word: kind for kind, words in YES_NO_TRANSLATIONS.items() for word in words.split()} | {
    phrase: kind
    for kind, texts in {
        "yes": "y|true|correct|positive|present|visible|likely|probably|absolutely|of course|that is correct|sure|certainly|indeed"
        "|definitely|i believe so|i think so"
        "|most likely|yes, it is|normal, yes",
        "no": "n|false|incorrect|negative|absent|not present|not visible|not seen|not evident|not identified|not detected|not likely"
        "|unlikely|very unlikely|highly unlikely|improbable|not really|of course not|certainly not"
        "|definitely not|absolutely not"
        "|not that i can see|not that i can tell|that is not correct|that is incorrect|probably "
        "not|most likely not|not at all"
        "|i do not believe so|i do not think so|there are none",
    }.items()
    for phrase in texts.split("|")
}
_SENTENCE_OPENING = (
    r"\W{0,20}(?:(?:based on|from|in|on|according to|looking at|upon|given)\b[^.,\n]{1,80},\s*"
    r"|(?:therefore|thus"
    r"|so|hence|indeed),?\s+"
    r"|(?:i (?:do not )?(?:think|believe)|it (?:appears|seems)) (?:that )?)?"
)
_FINDING_PARTICIPLE = (
    r"(?:seen|visible|present|identified|noted|detected|found|evident|observed|shown|demonstrated"
    r"|visuali[sz]ed"
    r"|apparent|appreciated"
    r"|in place)"
)
_DENIAL = re.compile(
    _SENTENCE_OPENING
    + r"(?:(?:i|we) (?:can |could |do |did |am |was )?(?:not )?(?:see|find|notice|observe|identify|detect) no\b"
    r"|there (?:is|are|was|were|appears? to be|seems? to be) (?:no|not)\b(?!\s+(?:doubt|denying"
    r"|mistaking"
    r"|question|way|image|need|reason"
    r"|answer|information|only)\b)"
    r"|(?:(?:the|this|that|it)\b(?:(?!\bbut\b)[^.,\n]){0,80}?\b(?:does|do|did|is|are|was|were)"
    r"|(?:[a-z]+ ){1,3}does) not\b"
    r"(?!\s+(?:un\w+|possible|necessarily|limited|only|just|clear|certain|enough|sufficient|known"
    r"|surprising|rare|always"
    r"|easy|easily|definitive"
    r"|conclusive|normal)\b)"
    r"|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?|reveals?|demonstrates?|has|have) no\b"
    rf"|no\s+(?:[\w-]+\s+){{0,6}}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?{_FINDING_PARTICIPLE}"
    rf"|no (?:evidence|sign|signs"
    rf"|indication) of\b"
    r"|there (?:does|do|did) not\b|(?:i|we) (?:do|did|can|could) not (?:see|find|identify|detect"
    r"|observe|notice"
    r"|visuali[sz]e"
    r"|appreciate|discern) (?:an?|any|signs?|evidence|obvious|clear|definite|the (?:presence"
    r"|signs?))\b"
    r"|(?:i am|we are) not able to (?:see|find|identify|detect) (?:an?|any)\b"
    r"|(?:i|we) (?:do|did) not (?:see(?! (?:the|your|an?) (?:image|picture|photo|attachment))"
    r"|(?:believe"
    r"|think) (?:that )?"
    r"(?:there|it|this|the))\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:is|are|was|were)\s+(?:absent|negative for"
    rf"|not (?:\w+ly )?{_FINDING_PARTICIPLE}|not (?:an?|the))\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:can|could) not be {_FINDING_PARTICIPLE}"
    r"|(?:the )?absence of\b(?![^.\n]*\b(?:suggest|indicat|mean|impl)\w*)|negative for\b)"
)
_RESTRICTION = re.compile(
    r"[;.]\s+(?:there (?:is|are) (?!no\b)|(?![^.;]*\b(?:no|not|normal)\b)[^.;]{1,60}? (?:shows?"
    r"|(?:is|are) (?:seen|present|visible))\b)"
    r"|\b(?:but|yet|however|except|although|though|instead)\b"
    r"(?!,? (?:it is (?:also )?(?:important|essential|crucial|worth)|please)\b)"
)
"""A denial followed by a finding ("No pneumothorax, but there is an effusion").

Without the question, it is ambiguous.
"""
_CONCLUSION = re.compile(r"(?:[.\n]\s*(?:therefore|thus|hence|so),\s+)([^.\n]+)[.\n]?\s*$")
_DENIED_NOUN_PHRASE = re.compile(
    r"[\s*]*(?:no(?!\s+(?:\w+ly\s+)?(?:idea|clue|information|image|answer|comment|way|doubt|one"
    r"|two|matter"
    r"|prior|previous|longer|problem"
    r"|worries|thanks|question|of|yes|further|contrast|history|puedo|se puede|es posible|sé|estoy"
    r"|tengo|lo s[ée]"
    r"|cuento|dispongo|need|harm)\b"
    r"|\s+\w+ (?:conclusion|answer|determination|questions)\b)|no hay|kein\w*|pas de"
    r"|not that i can (?:see|tell))\s"
    r"(?:(?!\b(?:is|are|was|were|can|could|do|does|has|have|let|if|unless|would"
    r"|should)\b)[\w/' -]){2,60}"
    rf"(?:(?:is|are|was|were|can be)\s+(?:\w+\s+)?{_FINDING_PARTICIPLE})?[.!]?\s*"
)
"""A denied noun phrase and nothing else ("No nodules.")."""


def parse_bare_yes_no(text: str) -> str | None:
    """Parse a response that consists only of yes or no, in many languages.

    Args:
        text: A normalized response.

    Returns:
        `yes`, `no` or None.
    """
    answer = " ".join(text.strip(".!?,;:\"'()[]{} \n\t。！，").lower().split())
    # Longer texts say more than yes or no.
    if len(answer) > 40:
        return None
    if answer in ("yes", "no"):
        return answer
    if answer in _WORD_TO_ANSWER:
        return _WORD_TO_ANSWER[answer]
    words = re.findall(r"\w+", answer)
    return words[0] if len(words) > 1 and words[0] in ("yes", "no") and len(set(words)) == 1 else None


def is_denial(text: str) -> bool:
    """Return True if a response begins or concludes with a denial, or consists of one.

    For example "There is no nodule ...", "No nodules."
    """
    # Only both ends are searched: denials in between mostly concern something else.
    lowered, conclusion = lower_aligned(text[:400]), _CONCLUSION.search(lower_aligned(text[-400:]))
    if conclusion and _DENIAL.match(conclusion[1]) and not _RESTRICTION.search(conclusion[1]):
        return True
    if _RESTRICTION.search(lowered) or re.search(r"\bwould\b", lowered):
        return False
    return bool(_DENIAL.match(lowered) or _DENIED_NOUN_PHRASE.fullmatch(lowered))


# --- declining ---

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
