"""No page of the board may have had an error, or asked another machine for anything, when its test
ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Pages


@pytest.fixture(autouse=True)
def no_errors(chromium: Pages) -> Iterator[None]:
    yield
    assert chromium.errors == []
