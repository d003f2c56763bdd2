"""Yes or no out of a response. Not here: letters and option texts (`answers.py`)."""

from __future__ import annotations

import re

_YES = r"yes|yeah|yep|yup|affirmative|sure|certainly|indeed"
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
    "absolutely not": "no", "yes yes": "yes", "yes yes yes": "yes", "no no": "no", "no no no": "no",
}  # fmt: skip

_UNDECIDED = re.compile(
    r"\b(?:yes|no)\s*(?:/|or|and|nor)\s*(?:a\s+)?(?:yes|no)\b|\b(?:neither|either|both)\s+yes\b|yes-no\b|yes-or-no\b",
    re.IGNORECASE,
)
_UNABLE = re.compile(
    r"\b(?:not (?:possible|sure|certain|clear|able|enough|applicable|sufficient)|can ?not (?:be )?(?:say|tell|determine\w*|confirm\w*"
    r"|answer\w*|"
    r"assess\w*|conclude\w*|judge\w*|see)|unable to|impossible to|uncertain|inconclusive|indeterminate|insufficient|hard to (?:say"
    r"|tell)|difficult to (?:say|tell)"
    r"|do not know|do not have|no (?:idea|clue|information|image|answer|comment|way)|unclear|maybe|perhaps|it depends|could not)\b",
    re.IGNORECASE,
)
_NOT_NO = r"(?!\s+(?:idea|clue|information|image|answer|comment|way|doubt|one|matter|longer|problem)\b|\s*\.\s*\d|-)"
_LEAD = re.compile(
    rf"^\W*(?:(?:answer|response|a|final answer|the answer is|it is an?|definitely|certainly|probably|(?:most )?likely|clearly"
    rf"|absolutely)\W+)?"
    rf"(?:(?P<yes>{_YES})|(?P<no>(?:{_NO}){_NOT_NO}|(?<=probably )not|(?<=likely )not))\b(?!-)(?!\s+(?:yes|no"
    rf"|not)\b(?!\s+doubt))(?!\W{{1,2}}(?:yes|no)\W*$)",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    rf"\b(?:answer|response|conclusion|verdict)\b\W?[^.\n:=?!]{{0,80}}?(?:\s*(?:\bis\b|\bwould be\b|\bwas\b|\bshould be\b|:|="
    rf"|->))+[\s\"'(\[]*"
    rf"(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b|\bi(?:'d| would| will)? (?:say|answer|think|believe|choose)[\s,:\"']+(?:(?P<yes2>yes)"
    rf"|(?P<no2>no))\b(?!\s+\w)"
    rf"|\b(?:therefore|thus|hence|so|actually|wait|correction|overall|finally|in conclusion|conclusion)\b[\s,:.\"'-]*(?:(?P<yes3>yes)"
    rf"|(?P<no3>no))\b(?=\W*(?:$|[,.;!\n]))",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"(?:^|[.!?;\n:,\"'(\[])\s*(?:(?P<yes>yes)|(?P<no>no(?!\.\s?\d)))\s*(?=$|[.!,;\n\"')\]])", re.IGNORECASE
)
_DENIES = re.compile(
    r"^\W*(?:(?:based on|from|in|on|according to|looking at|upon)\b[^.,\n]{1,80},\s*)?(?:i (?:can |do )?(?:not )?see no\b|there (?:is"
    r"|are|was|were|appears? to be|seems? to be) (?:no|not)\b"
    r"|(?:the|this|that|it)\b[^.\n]{0,80}?\b(?:does|do|did|is|are|was|were) not\b|(?:the|this|that|it)\b[^.\n]{0,60}?\b(?:shows?"
    r"|reveals?|demonstrates?|has|have) no\b"
    r"|no\s+(?:\w+\s+){0,6}?(?:is|are|was|were|can be)\s+(?:\w+\s+)?(?:seen|visible|present|identified|noted|detected|found|evident"
    r"|observed|shown)|no (?:evidence|sign|signs|indication) of\b"
    r"|there (?:does|do|did) not\b|i do not see\b|(?:\w+\s+){1,5}(?:is|are|was|were)\s+(?:absent|negative for)\b|negative for\b)",
    re.IGNORECASE,
)
_AFFIRMS = re.compile(
    r"^\W*(?:(?:based on|from|in|on|according to|looking at|upon)\b[^.,\n]{1,80},\s*)?(?:there (?:is|are)\s+(?:(?:a|an|some|clear"
    r"|definite)\s+)?(?!no\b|not\b|nothing\b)\w+|it (?:is|does)\W*$|positive for\b)",
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
    undecided = _UNDECIDED.search(text) is not None
    text = _UNDECIDED.sub(" ", text)
    statements = [_kind(match) for match in _STATEMENT.finditer(text)]
    if statements:
        return statements[-1], "answer statement"
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
    if _AFFIRMS.search(text):
        return "yes", "affirmation"
    return None, "neither yes nor no"


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
