"""The search for burned-in text takes about a second a picture: only its own tests run it."""

import pytest

from curation.gmai import overlay


@pytest.fixture(scope="package", autouse=True)
def no_text_search():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay, "find_text", lambda image: [])
        yield
