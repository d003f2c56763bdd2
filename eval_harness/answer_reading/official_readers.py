"""Each paper's own reader, defects included: what `--extraction official` uses. Our reader is `answers.py`.

They decide which numbers a paper prints; none is recommended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataset_builders.schema import LETTERS

if TYPE_CHECKING:
    from eval_harness.answers import Reader, Reading


def _reading(choice: tuple[int, ...], rule: str) -> Reading:
    from eval_harness.answers import Reading

    return Reading(choice, "answered" if choice else "irrelevant", rule)


_DRESSES = ("{0}", "{0}:", ".{0}", ".{0}:", "{0}.", '{0}")', '("{0}":', '("{0}")', '("{0}").')


def mediconfusion(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The authors' `clean_up_manual`: split at blanks, look for an option letter in one of nine dresses; two letters found are none.

    Defects: the article "A" is option A; "(B)" is nothing; an article beside a letter ("B: A mass") makes the answer invalid.
    """
    words = set(response.replace("\n", " ").split(" "))
    found = tuple(
        place for place in range(len(options)) if any(dress.format(LETTERS[place]) in words for dress in _DRESSES)
    )
    return _reading(found if len(found) == 1 else (), "official: letter between blanks")


def probmed(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The authors' `get_score_binary`, as a reading: 'Yes' anywhere, or the whole response yes; likewise 'No'.

    It asks only whether the key is found: a response with both is right for either key, so both positions are returned (see
    `probmed_hit`). Defects: "Normal" and "None" hold 'No'; "yes, there is" is nothing.
    """
    lowered = [option.strip().lower() for option in options]
    found = tuple(place for place, word in enumerate(lowered) if word in ("yes", "no") and probmed_hit(response, word))
    return _reading(found, "official: Yes or No as a substring")


def probmed_hit(response: str, key: str) -> bool:
    """Whether the authors' scorer counts a response as right, for the key `yes` or `no`."""
    text = response.strip()
    return key.capitalize() in text or text.lower() in (key, key + ".")


_BLANKED = str.maketrans(".()[],:;!*#{}", " " * 13)
_REJECTS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)


def gmai_mmbench(response: str, options: Sequence[str], question_type: str) -> Reading:
    """VLMEvalKit's matching, which GMAI-MMBench is scored with: one option letter between blanks, else one option text in a response
    not longer than twice the options together.

    Defects: the article "A" is option A; "Option (B)" beside another letter is none; an option text inside a longer word counts. What it
    leaves unread its users give to a judge, or to chance; here it stays irrelevant.
    Multiple choice (the paper asks for "A,B"): every option letter between commas or blanks.
    """
    if "Failed to obtain answer via API" in response:
        return _reading((), "official: error text")
    if any(reject in response for reject in _REJECTS):
        from eval_harness.answers import Reading

        return Reading((), "refused", "official: refusal")
    words = response.translate(_BLANKED).split()
    found = tuple(place for place in range(len(options)) if LETTERS[place] in words)
    if question_type == "multiple":
        return _reading(found, "official: letters")
    if len(found) == 1:
        return _reading(found, "official: letter between blanks")
    lowered = response.lower()
    if len(lowered) <= 2 * sum(len(option) for option in options):
        found = tuple(place for place, option in enumerate(options) if option.lower() in lowered)
        if len(found) == 1:
            return _reading(found, "official: option text")
    return _reading((), "official: no option")


def halt_medvqa(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The prediction's one token must be an option letter (paper section 4); anything else is irrelevant."""
    token = response.strip()
    place = LETTERS.find(token) if len(token) == 1 else -1
    return _reading((place,) if 0 <= place < len(options) else (), "official: the token is a letter")


OFFICIAL_READERS: dict[str, Reader] = {
    "mediconfusion": mediconfusion,
    "probmed": probmed,
    "gmai-mmbench": gmai_mmbench,
    "halt-medvqa": halt_medvqa,
}
