"""The reader of the paper's own code, defects included: what `--extraction official` uses. It decides which numbers the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from dataset_builders.schema import LETTERS
from eval_harness.reader import Reading, official

_BLANKED = str.maketrans(".()[],:;!*#{}", " " * 13)
_REJECTS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)


def read(response: str, options: Sequence[str], question_type: str) -> Reading:
    """VLMEvalKit's matching, which GMAI-MMBench is scored with: one option letter between blanks, else one option text in a response
    not longer than twice the options together.

    Defects: the article "A" is option A; "Option (B)" beside another letter is none; an option text inside a longer word counts. What it
    leaves unread its users give to a judge, or to chance; here it stays irrelevant.
    Multiple choice (the paper asks for "A,B"): every option letter between commas or blanks.
    """
    if "Failed to obtain answer via API" in response:
        return official((), "official: error text")
    if any(reject in response for reject in _REJECTS):
        return Reading((), "refused", "official: refusal")
    words = response.translate(_BLANKED).split()
    found = tuple(index for index in range(len(options)) if LETTERS[index] in words)
    if question_type == "multiple":
        return official(found, "official: letters")
    if len(found) == 1:
        return official(found, "official: letter between blanks")
    lowered = response.lower()
    if len(lowered) <= 2 * sum(len(option) for option in options):
        found = tuple(index for index, option in enumerate(options) if option.lower() in lowered)
        if len(found) == 1:
            return official(found, "official: option text")
    return official((), "official: no option")
