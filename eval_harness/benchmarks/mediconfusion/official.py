"""The reader of the paper's own code, defects included: what `--extraction official` uses. It decides which numbers the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from dataset_builders.schema import LETTERS
from eval_harness.reader import Reading, official

_FORMS = ("{0}", "{0}:", ".{0}", ".{0}:", "{0}.", '{0}")', '("{0}":', '("{0}")', '("{0}").')


def read(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The authors' `clean_up_manual`: split at blanks, look for an option letter in one of nine forms; two letters found are none.

    Defects: the article "A" is option A; "(B)" is nothing; an article beside a letter ("B: A mass") makes the answer invalid.
    """
    words = set(response.replace("\n", " ").split(" "))
    found = tuple(
        index for index in range(len(options)) if any(form.format(LETTERS[index]) in words for form in _FORMS)
    )
    return official(found if len(found) == 1 else (), "official: letter between blanks")
