"""Texts of strangers in tables that spreadsheets open: a cell that begins like a formula would be run as one."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pandas as pd

STARTS = tuple("=+-@|%")
"""What a formula begins with in Excel, LibreOffice and Sheets (OWASP: CSV Injection), and the full-width forms of them by NFKC."""
NEXT_CELL = re.compile('([;\t\r\n]["\\s]*)(?=[=+\\-@|%\uff1d\uff0b\uff0d\uff20\uff5c\uff05])')
"""Where a cell would begin for a spreadsheet that divides by semicolons or tabs, as those of many languages do, and a formula in it."""


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would take a text for a formula."""
    seen = "".join(sign for sign in unicodedata.normalize("NFKC", text[:200]) if sign.isprintable()).lstrip()
    return seen.startswith(STARTS) or text[:1] in ("\t", "\r", "\n")


def harmless(value: Any) -> Any:
    """The value of a cell; before what a spreadsheet would take for a formula stands an apostrophe, also where one that divides by other
    signs would see a cell begin.

    >>> harmless('=HYPERLINK("https://evil")')
    '\\'=HYPERLINK("https://evil")'
    """
    if not isinstance(value, str):
        return value
    text = NEXT_CELL.sub(r"\1'", value)
    return "'" + text if is_formula(value) else text


def harmless_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts are harmless; numbers stay numbers."""
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    return table.assign(**{name: table[name].map(harmless) for name in texts})
