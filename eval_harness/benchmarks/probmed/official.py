"""The reader of the paper's own code, defects included: what `--extraction official` uses. It decides which numbers the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.reader import Reading, official


def read(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The authors' `get_score_binary`, as a reading: 'Yes' anywhere, or the whole response yes; likewise 'No'.

    It asks only whether the key is found: a response with both is right for either key, so both positions are returned (see
    `probmed_hit`). Defects: "Normal" and "None" hold 'No'; "yes, there is" is nothing.
    """
    lowered = [option.strip().lower() for option in options]
    found = tuple(index for index, word in enumerate(lowered) if word in ("yes", "no") and probmed_hit(response, word))
    return official(found, "official: Yes or No as a substring")


def probmed_hit(response: str, key: str) -> bool:
    """True if the authors' scorer counts a response as right, for the key `yes` or `no`."""
    text = response.strip()
    return key.capitalize() in text or text.lower() in (key, key + ".")
