"""Fail every test during which a page of the board has an error or sends a request to another
machine.
"""

from collections.abc import Iterator

import pytest

from tests.browser import Pages


@pytest.fixture(autouse=True)
def no_errors(chromium: Pages) -> Iterator[None]:
    yield
    assert chromium.errors == []
