"""Read yes or no out of a response: what it says, and what it denies or asserts without the word.

Every function takes a text that has been made plain and returns `yes`, `no`, "" (both, or neither for sure) or None (nothing found).
What a question asks is not looked at: "There is an effusion, but on the right" says yes and no, and is left to a judge.
"""

from __future__ import annotations

import re
from itertools import islice

from eval_harness.reader.text import lower

_YES, _NO = r"yes|yeah|yep|yup|affirmative", r"no|nope|nah"
"""Not "sure", "certainly": they open a reply ("Certainly! Let us look at it."), whichever way it goes on."""
_FOREIGN = {
    word: kind
    for kind, words in {
        "yes": "oui sí sì ja si да evet sim tak igen áno ano hai はい 是 是的 有 对 對 예 네 نعم हाँ हां ναι כן",
        "no": "non nein nej нет hayır não nie nem iie いいえ 否 不 不是 没有 沒有 아니요 아니오 لا नहीं όχι לא",
    }.items()
    for word in words.split()
}
_WHOLE = _FOREIGN | {
    said: kind
    for kind, texts in {
        "yes": "y|true|correct|positive|present|visible|likely|probably|absolutely|of course|that is correct|sure|certainly|indeed"
        "|definitely"
        "|most likely|yes, it is|normal, yes",
        "no": "n|false|incorrect|negative|absent|not present|not visible|not seen|not evident|not identified|not detected|not likely"
        "|unlikely|very unlikely|highly unlikely|improbable|not really|of course not|certainly not"
        "|definitely not|absolutely not"
        "|that is not correct|that is incorrect|probably not|most likely not|not at all",
    }.items()
    for said in texts.split("|")
}
_UNDECIDED = re.compile(
    r"\b(?:yes|no)\s*(?:/|or|and|nor)\s*(?:a\s+)?(?:yes|no)\b|\b(?:neither|either|both)\s+yes\b|yes-no\b|yes-or-no\b"
)
_SURELY = r"(?:(?:certainly|definitely|clearly|probably|(?:most )?likely|indeed|absolutely|simply)\s+)?"
_NOT_NO = (
    r"(?!\s+(?:puedo|se puede|es posible|sé|estoy|tengo|lo s[ée]|cuento|dispongo|está claro)\b"
    r"|\s+(?:idea|clue|information|image|answer|comment|way|doubt|one|matter|prior|previous|longer|problem"
    r"|question|of)\b"
    r"|\s+\w+ answer\b|\s+evidence either\b|\.\s+of\b|[,.]?\s+(?:wait|hold on)\b[^.!]*[.!]?\s*(?:let me|let us|let's)"
    r"|\s+(?:\w+ )?(?:determination|conclusion|judge?ment)\b|\s+(?:\w+\s+){0,4}\w+\?"
    r"|[,.]?\s+(?:sorry,?\s+)?i (?:am (?:unable|not able)|can not (?:help|assist|determine|tell|say|answer"
    r"|provide|view|interpret|diagnose))\b"
    r"|[,.]?\s+(?:the|this) \w+ does not (?:provide|contain|offer|give|show|have|include|allow) (?:enough"
    r"|sufficient|adequate"
    r"|a reliable|any conclusion)\b"
    r"|[,.]?\s+it (?:can not be|is not possible to) (?:determine|answer|sa[iy]|tell|assess)|\s*\.\s*\d|-)"
)
_NOT_YES = r"(?![,.!]?\s+i (?:can|could|will|would be (?:happy|glad)) (?:to )?(?:\w+ )?(?:help|assist|answer|do)\b)"
_LEAD = re.compile(
    rf"\W{{0,20}}(?:(?:option )?[a-z][).:]\s+)?(?:(?:answer|response|a|final answer|the answer is|(?:it"
    rf"|that) is an?(?: (?:definite|clear|firm))?"
    rf"|definitely|certainly|probably|(?:most )?likely|clearly|indeed|absolutely)\W+)?"
    rf"(?:(?P<yes>(?:{_YES}){_NOT_YES}|(?:correct|true)(?=\s*[,.!]))|(?P<no>(?:{_NO}){_NOT_NO}|(?:incorrect|false"
    rf"|unlikely)(?=\s*[,.!])"
    rf"|not that i (?:can|could) (?:see|tell)|(?<=probably )not|(?<=likely )not))\b(?!-)"
    rf"(?!\s+(?:yes|no|not)\b(?!\s+doubt))(?!\s+(?:only )?(?:if|when)\b)"
    rf"(?![\"']?\s+would (?:mean|imply|indicate)\b)(?!\W{{1,4}}(?:yes|no)\W*(?:$|[,.;!\n]))"
)
_STATED = re.compile(
    rf"\b(?:answer|response|conclusion|verdict)\b\W?[^.\n:=?!]{{0,80}}?(?:\s*(?:\bis\b|\bwould be\b|\bwas\b"
    rf"|\bshould be\b|:|=|->))+"
    rf"[\s\"'(\[]*(?:[a-z][).:]\s*)?{_SURELY}(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b"
    rf"|\bi(?:'d| would| will)? (?:say|answer|think|believe|choose)[\s,:\"']+(?:(?P<yes2>yes)"
    rf"|(?P<no2>no))\b(?!\s+(?!to (?:this|the|your)\b)\w)"
    r"|\b(?:therefore|thus|hence|so|actually|wait|correction|overall|finally|in conclusion|conclusion)\b[\s,:.\"'-]*"
    r"(?:(?P<yes3>yes)|(?P<no3>no))\b(?=\W*(?:$|[.,;!\n]))"
    rf"|\b(?:but|however)\b(?:[^.:\n]{{0,80}}:\s*|,?\s+{_SURELY})(?:(?P<yes4>yes)|(?P<no4>no))\b(?=\W*(?:$"
    rf"|[.,;!\n]|[-–—]\s))"
    r"|\b(?:the|this|that) (?:(?:statement|claim|assertion)(?:,? \"[^\"\n]{1,200}\",?| that [^.\n]{1,200}?)? )?is "
    r"(?:(?P<yes5>true|correct)|(?P<no5>false|incorrect|not true|not correct))\b"
    r"|(?:\b(?:antwort|lösung|respuesta|réponse|risposta|resposta|ответ)\b(?:\s+\w+){0,2}?|答案|答え|正解|정답)\s*"
    r"(?:\b(?:ist|lautet|es|est|è|é|is)\b|[是为は은:：-])?\s*:?\s*[\"'«]?(?P<word>\w+)"
)
_IF = re.compile(
    r"\b(?:not (?:true|certain|sure) that|if|unless|whether|wenn|falls|si)\b(?! (?:i|we) (?:had|have|must"
    r"|were forced)| forced| asked| ich)[^.;\n]*$"
)
_LAST = re.compile(r"(?:[.!?\n])[\s\"'(\[]*(yes|no)[\s.!\"')\]]*$")
_ALONE = re.compile(
    r"(?:^|[.!?;\n:,\"'(\[]|\s[-–—]|->|=>|→)\s*(?:(?P<yes>yes(?!,? i (?:can|could) |['\"] would mean))"
    r"|(?P<no>no(?!['\"] (?:would mean|that)\b)(?!\.\s?\d|\.\s+of\b|[,.]?\s+(?:wait|hold on)\b)))\s*(?=$"
    r"|[.!,;\n\"')\]])"
)
_BEGINS = (
    r"\W{0,20}(?:(?:based on|from|in|on|according to|looking at|upon|given)\b[^.,\n]{1,80},\s*|(?:therefore|thus"
    r"|so|hence|indeed),?\s+"
    r"|(?:i (?:do not )?(?:think|believe)|it (?:appears|seems)) (?:that )?)?"
)
_FOUND = (
    r"(?:seen|visible|present|identified|noted|detected|found|evident|observed|shown|demonstrated|visuali[sz]ed"
    r"|apparent|appreciated"
    r"|in place)"
)
_DENIES = re.compile(
    _BEGINS + r"(?:(?:i|we) (?:can |could |do |did |am |was )?(?:not )?(?:see|find|notice|observe|identify|detect) no\b"
    r"|there (?:is|are|was|were|appears? to be|seems? to be) (?:no|not)\b(?!\s+(?:doubt|denying|mistaking"
    r"|question|way|image|need|reason"
    r"|answer|information|only)\b)"
    r"|(?:the|this|that|it)\b(?:(?!\bbut\b)[^.,\n]){0,80}?\b(?:does|do|did|is|are|was|were) not\b"
    r"(?!\s+(?:un\w+|possible|necessarily|only|just|clear|certain|enough|sufficient|known|surprising|rare|always"
    r"|easy|easily|definitive"
    r"|conclusive|normal)\b)"
    r"|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?|reveals?|demonstrates?|has|have) no\b"
    rf"|no\s+(?:[\w-]+\s+){{0,6}}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?{_FOUND}|no (?:evidence|sign|signs"
    rf"|indication) of\b"
    r"|there (?:does|do|did) not\b|(?:i|we) (?:do|did|can|could) not (?:see|find|identify|detect|observe|notice"
    r"|visuali[sz]e"
    r"|appreciate|discern) (?:an?|any|signs?|evidence|obvious|clear|definite|the (?:presence|signs?))\b"
    r"|(?:i am|we are) not able to (?:see|find|identify|detect) (?:an?|any)\b"
    r"|(?:i|we) (?:do|did) not (?:see(?! (?:the|your|an?) (?:image|picture|photo|attachment))|(?:believe"
    r"|think) (?:that )?"
    r"(?:there|it|this|the))\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:is|are|was|were)\s+(?:absent|negative for|not (?:\w+ly )?{_FOUND})\b"
    rf"|(?:[\w-]+\s+){{1,6}}(?:can|could) not be {_FOUND}"
    r"|(?:the )?absence of\b(?![^.\n]*\b(?:suggest|indicat|mean|impl)\w*)|negative for\b)"
)
_NOTHING = (
    r"(?:(?:no|not|nothing|neither|none|little|few|limited|insufficient|minimal|probably|possibly|perhaps|maybe"
    r"|absence|lack|loss|zero"
    r"|hardly|barely|scant|almost no|normal|possible|suspected|evidence against|error|mistake|something"
    r"|several things|great question"
    r"|question|problem|issue|need|way|room|image|doubt|suspicion|concern|chance|likelihood|probability|risk"
    r"|limit\w*|uncertain\w*"
    r"|possib\w+|difficult\w*|(?:only|one|two|three|several|many|multiple|some) (?:possib\w+|answers?|options?"
    r"|limit\w*|uncertain\w*))\b"
    r"|(?:small|slight|low|high|real|good|some|serious) (?:possib\w+|chance|likelihood|probability|risk|suspicion"
    r"|uncertain\w*))"
)
"""What "there is" may go on with that affirms nothing."""
_NEGATED = re.compile(r"\b(?:no|not|without|nor|neither|free of|negative|but|however|only|instead|rather)\b")
_AFFIRMS = re.compile(
    _BEGINS
    + rf"(?:there (?:is|are)\s+(?!(?:(?:a|an|some|clear|definite)\s+)?{_NOTHING})\w+|it (?:is|does)\W*$|positive for\b)"
    r"|\W{0,20}indeed\b"
)
_NO_BUT = re.compile(
    r"\W{0,20}no\s+(?!there|it|this|that|the|i\b)\w[^.\n]{0,120}?\b(?:but|however)\b[^.\n]{0,40}?\b(?:is|are|has"
    r"|have|shows?)\b"
)
"""A denial that goes on with what there is instead ("No pneumothorax, but there is an effusion"): only the question tells which counts."""


def whole(text: str) -> str | None:
    """A response that is nothing but yes or no, in many languages."""
    said = " ".join(text.strip(".!?,;:\"'()[]{} \n\t。！，").lower().split())
    if len(said) > 40:
        return None
    if said in ("yes", "no"):
        return said
    if said in _WHOLE:
        return _WHOLE[said]
    words = re.findall(r"\w+", said)
    return words[0] if len(words) > 1 and words[0] in ("yes", "no") and len(set(words)) == 1 else None


def stated(text: str) -> str | None:
    """The last explicit statement: "the answer is no", "so, yes", a last sentence that is only the word."""
    lowered = _without_pairs(lower(text))
    said: list[tuple[int, str]] = []
    for match in _STATED.finditer(lowered):
        kind = _FOREIGN.get(match["word"]) if match["word"] else _kind(match)
        if kind is not None and not _IF.search(lowered, max(0, match.start() - 160), match.start()):
            said.append((match.start(), kind))
    if (last := _LAST.search(lowered, max(0, len(lowered) - 60))) is not None and lowered[: last.start()].strip():
        if {_kind(match) for match in islice(_ALONE.finditer(lowered), 200)} != {last[1]}:
            return max(said)[1] if said else ""
        said.append((last.start(1), last[1]))
    return max(said)[1] if said else None


def leading(text: str) -> str | None:
    """A response that begins with yes or no."""
    lowered = lower(text[:400])
    first = re.split(r"[,.;!\n，]", lowered[:40], maxsplit=1)[0].strip()
    if first in _FOREIGN:
        return _FOREIGN[first]
    for start, kind in (("没有", "no"), ("沒有", "no"), ("不是", "no"), ("是的", "yes")):
        if lowered.startswith(start):
            return kind
    lead = _LEAD.match(_without_pairs(lowered))
    return _kind(lead) if lead and not _NO_BUT.match(lowered) else None


def alone(text: str) -> str | None:
    """Yes or no by itself somewhere in the response."""
    lowered = lower(text)
    plain = _without_pairs(lowered)
    found = {
        _kind(match)
        for match in islice(_ALONE.finditer(plain), 200)
        if not _IF.search(plain, max(0, match.start() - 160), match.start())
    }
    return found.pop() if len(found) == 1 else "" if found or _UNDECIDED.search(lowered) else None


def denies(text: str) -> str | None:
    """A response that begins with a denial, without the word no: "there is no nodule", "I cannot see any"."""
    lowered = lower(text[:400])
    return "no" if _DENIES.match(lowered) and not _NO_BUT.match(lowered) else None


def affirms(text: str) -> str | None:
    """A response that begins with "there is", and denies or restricts nothing."""
    lowered = lower(text[:400])
    return "yes" if _AFFIRMS.match(lowered) and not _NEGATED.search(lowered[:300]) else None


def _without_pairs(lowered: str) -> str:
    """Without "yes or no", which offers both."""
    return _UNDECIDED.sub(" ", lowered) if "yes" in lowered else lowered


def _kind(match: re.Match[str]) -> str:
    return str(match.lastgroup).rstrip("2345")
