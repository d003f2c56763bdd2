"""Disable the search for burned-in text, which takes about a second per picture.

Tests of the search itself patch it again.
"""

import pytest

from curation.gmai import benchmark_files


@pytest.fixture(scope="package", autouse=True)
def no_text_search():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark_files, "find_text", lambda image: [])
        yield
