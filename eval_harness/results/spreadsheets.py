"""Texts of strangers in tables that spreadsheets open: a cell that begins like a formula would be run as one."""

from __future__ import annotations

import unicodedata
from typing import Any

import pandas as pd

STARTS = tuple("=+-@|%")
"""What a formula begins with in Excel, LibreOffice and Sheets (OWASP: CSV Injection), and the full-width forms of them by NFKC."""


def harmless(value: Any) -> Any:
    """The value of a cell; a text that a spreadsheet would take for a formula gets an apostrophe before it.

    >>> harmless('=HYPERLINK("https://evil")')
    '\\'=HYPERLINK("https://evil")'
    """
    if not isinstance(value, str):
        return value
    seen = "".join(sign for sign in unicodedata.normalize("NFKC", value[:200]) if sign.isprintable()).lstrip()
    return "'" + value if seen.startswith(STARTS) or value[:1] in ("\t", "\r", "\n") else value


def harmless_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts are harmless; numbers stay numbers."""
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    return table.assign(**{name: table[name].map(harmless) for name in texts})
