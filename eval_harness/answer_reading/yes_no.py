"""Yes or no out of a response. Not here: letters and option texts (`answers.py`)."""

from __future__ import annotations

import re

_YES = r"yes|yeah|yep|yup|affirmative"
"""Not "sure", "certainly": they open a reply ("Certainly! Let us look at it."), whichever way it goes on."""
_NO = r"no|nope|nah"
_FOREIGN = {
    "yes": "oui sí si ja да evet sim tak igen áno ano hai はい 是 是的 有 对 對 예 네 نعم हाँ हां ναι כן",
    "no": "non nein nej нет hayır não nie nem iie いいえ 否 不 不是 没有 沒有 아니요 아니오 لا नहीं όχι לא",
}
_FOREIGN_WORDS = {word: kind for kind, words in _FOREIGN.items() for word in words.split()}
_WHOLE = _FOREIGN_WORDS | {
    "y": "yes", "n": "no", "true": "yes", "false": "no", "correct": "yes", "incorrect": "no",
    "negative": "no", "positive": "yes", "absent": "no", "present": "yes", "not present": "no", "not really": "no",
    "that's correct": "yes", "absolutely": "yes", "of course": "yes", "of course not": "no", "certainly not": "no", "definitely not": "no",
    "that is correct": "yes", "that is not correct": "no", "that is incorrect": "no",
    "absolutely not": "no", "sure": "yes", "certainly": "yes", "indeed": "yes", "definitely": "yes",
}  # fmt: skip

_UNDECIDED = re.compile(
    r"\b(?:yes|no)\s*(?:/|or|and|nor)\s*(?:a\s+)?(?:yes|no)\b|\b(?:neither|either|both)\s+yes\b|yes-no\b|yes-or-no\b",
    re.IGNORECASE,
)
_UNABLE = re.compile(
    r"\b(?:not (?:possible|sure|certain|clear|able|enough|applicable|sufficient)|can ?not (?:be )?(?:say|tell|determine\w*|confirm\w*"
    r"|answer\w*|"
    r"help|assist|provide|interpret|assess\w*|conclude\w*|judge\w*|see)"
    r"|unable to|impossible to|uncertain|inconclusive|indeterminate|insufficient|hard to (?:say"
    r"|tell)|difficult to (?:say|tell)"
    r"|(?:answer|response) is not (?:yes|no)|do not know|do not have"
    r"|no (?:idea|clue|information|image|answer|comment|way)|unclear|maybe|perhaps|it depends|could not)\b",
    re.IGNORECASE,
)
_SURELY = r"(?:(?:certainly|definitely|clearly|probably|(?:most )?likely|indeed|absolutely|simply)\s+)?"
_NOT_NO = (
    r"(?!\s+(?:idea|clue|information|image|answer|comment|way|doubt|one|matter|longer|problem|question)\b|\s+(?:\w+\s+){0,4}\w+\?"
    r"|[,.]?\s+(?:sorry,?\s+)?i (?:am (?:unable|not able)|can not (?:help|assist|determine|tell|say|answer|provide|view|interpret))\b"
    r"|\s*\.\s*\d|-)"
)
_LEAD = re.compile(
    rf"^\W*(?:(?:answer|response|a|final answer|the answer is|it(?: is|'s) an?(?: (?:definite|clear|firm))?"
    rf"|definitely|certainly|probably|(?:most )?likely|clearly"
    rf"|absolutely)\W+)?"
    rf"(?:(?P<yes>{_YES})|(?P<no>(?:{_NO}){_NOT_NO}|(?<=probably )not|(?<=likely )not))\b(?!-)(?!\s+(?:yes|no"
    rf"|not)\b(?!\s+doubt))(?!\s+(?:only )?(?:if|when)\b)(?!\W{{1,4}}(?:yes|no)\W*(?:$|[,.;!\n]))",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    rf"\b(?:answer|response|conclusion|verdict)\b\W?[^.\n:=?!]{{0,80}}?(?:\s*(?:\bis\b|\bwould be\b|\bwas\b|\bshould be\b|:|="
    rf"|->))+[\s\"'(\[]*{_SURELY}"
    rf"(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b|\bi(?:'d| would| will)? (?:say|answer|think|believe|choose)[\s,:\"']+(?:(?P<yes2>yes)"
    rf"|(?P<no2>no))\b(?!\s+\w)"
    rf"|\b(?:therefore|thus|hence|so|actually|wait|correction|overall|finally|in conclusion|conclusion)\b[\s,:.\"'-]*(?:(?P<yes3>yes)"
    rf"|(?P<no3>no))\b(?=\W*(?:$|[,.;!\n]))",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"(?:^|[.!?;\n:,\"'(\[]|\s[-–—]|->|=>|→)\s*(?:(?P<yes>yes)|(?P<no>no(?!\.\s?\d)))\s*(?=$|[.!,;\n\"')\]])",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"^\W*(?:(?:based on|from|in|on|according to|looking at|upon)\b[^.,\n]{1,80},\s*)?(?:i (?:can |do )?(?:not )?see no\b|there (?:is"
    r"|are|was|were|appears? to be|seems? to be) (?:no|not)\b(?!\s+(?:doubt|question|way|image|need|reason|answer|information|only)\b)"
    r"|(?:the|this|that|it)\b[^.\n]{0,80}?\b(?:does|do|did|is|are|was|were) not\b|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?"
    r"|reveals?|demonstrates?|has|have) no\b"
    r"|no\s+(?:\w+\s+){0,6}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?(?:seen|visible|present|identified|noted|detected|found|evident"
    r"|observed|shown)|no (?:evidence|sign|signs|indication) of\b"
    r"|there (?:does|do|did) not\b|i do not see\b|(?:\w+\s+){1,5}(?:is|are|was|were)\s+(?:absent|negative for)\b|negative for\b)",
    re.IGNORECASE,
)
_NOTHING = (
    r"(?:(?:no|not|nothing|neither|none|little|few|limited|insufficient|minimal|probably|possibly|perhaps|maybe|absence|lack|loss"
    r"|zero|hardly|barely|scant|almost no|normal"
    r"|possible|suspected|evidence against|error|mistake|something|several things|great question"
    r"|question|problem|issue|need|way|room|image|doubt|suspicion|concern|chance|likelihood|probability|risk|limit\w*|uncertain\w*"
    r"|possib\w+|difficult\w*|(?:two|several|many|multiple|some) (?:possib\w+|answers?|options?|limit\w*|uncertain\w*))\b"
    r"|(?:small|slight|low|high|real|good|some|serious) (?:possib\w+|chance|likelihood|probability|risk|suspicion|uncertain\w*))"
)
"""What "there is" may go on with that affirms nothing."""
_NEGATED = re.compile(r"\b(?:no|not|without|nor|neither|free of|negative)\b", re.IGNORECASE)
_WEIGHTS = re.compile(
    r"\byes\W{1,4}0?[.\d]\d*.{0,40}?\bno\W{1,4}0?[.\d]\d*|\bno\W{1,4}0?[.\d]\d*.{0,40}?\byes\W{1,4}0?[.\d]", re.I | re.S
)
_IF = re.compile(r"\b(?:if|unless|had)\b[^.!?\n]*$", re.IGNORECASE)
_AFFIRMS = re.compile(
    r"^\W*(?:(?:based on|from|in|on|according to|looking at|upon)\b[^.,\n]{1,80},\s*)?(?:there (?:is|are)"
    rf"\s+(?!(?:(?:a|an|some|clear|definite)\s+)?{_NOTHING})\w+|it (?:is|does)\W*$|positive for\b)",
    re.IGNORECASE,
)


def read_yes_no(text: str) -> tuple[str | None, str]:
    """`yes`, `no` or None, and the rule that decided. `text` has been made plain."""
    whole = text.strip().strip(".!?,;:\"'()[]{} \n\t。！，").strip().lower()
    if whole in ("yes", "no"):
        return whole, "whole response"
    if whole in _WHOLE:
        return _WHOLE[whole], "whole response"
    if (foreign := _foreign_lead(text)) is not None:
        return foreign, "leading yes or no"
    words = whole.split()
    if len(words) > 1 and words[0] in ("yes", "no") and len(set(words)) == 1:
        return words[0], "whole response"
    text = text.replace("here's", "here is")
    undecided = _UNDECIDED.search(text) is not None
    text = _UNDECIDED.sub(" ", text)
    statements = [_kind(match) for match in _STATEMENT.finditer(text) if not _would_be(text, match)]
    if statements:
        return statements[-1], "answer statement"
    if _WEIGHTS.search(text[:300]):
        return None, "undecided"
    lead = _LEAD.match(text)
    if lead is not None:
        return _kind(lead), "leading yes or no"
    if _UNABLE.search(text):
        return None, "undecided"
    alone = {_kind(match) for match in _ALONE.finditer(text)}
    if len(alone) == 1:
        return alone.pop(), "yes or no by itself"
    if alone:
        return None, "both yes and no"
    if undecided:
        return None, "undecided"
    if _DENIES.search(text):
        return "no", "denial"
    if _AFFIRMS.search(text) and not _NEGATED.search(text[:300]):
        return "yes", "affirmation"
    return None, "neither yes nor no"


def _would_be(text: str, statement: re.Match[str]) -> bool:
    """Whether a statement is only what the answer would be under a condition ("if it were broken, the answer would be yes")."""
    if "would" not in statement[0].lower() and "should" not in statement[0].lower():
        return False
    after = text[statement.end() : statement.end() + 12].lower()
    return _IF.search(text[max(0, statement.start() - 160) : statement.start()]) is not None or " if " in after


def _foreign_lead(text: str) -> str | None:
    """A word for yes or no of another language before the first comma or stop, or one in a script without blanks at the start."""
    first = re.split(r"[,.;!\n，]", text, maxsplit=1)[0].strip().lower()
    if first in _FOREIGN_WORDS:
        return _FOREIGN_WORDS[first]
    return next(
        (
            kind
            for start, kind in (("没有", "no"), ("沒有", "no"), ("不是", "no"), ("是的", "yes"))
            if text.startswith(start)
        ),
        None,
    )


def _kind(match: re.Match[str]) -> str:
    return next(name for name, value in match.groupdict().items() if value)[:3].rstrip("23")
