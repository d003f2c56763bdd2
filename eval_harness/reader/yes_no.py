"""Read yes or no from a response, or a denial without either word.

Every function takes a normalized text. The question is not considered: "There is an effusion on the
right" may affirm or deny it, and is left to a judge.
"""

from __future__ import annotations

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
