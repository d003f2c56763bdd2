"""The search for burned-in text takes about a second a picture: only its own tests run it."""

import pytest

from curation.gmai import burned_in


@pytest.fixture(scope="package", autouse=True)
def no_text_search():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(burned_in, "find_text", lambda image: [])
        yield
