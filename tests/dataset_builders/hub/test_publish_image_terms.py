"""Licences that let a set be public, written as sources write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builders.images.licences import allows_copies

YES = """CC BY|CC BY-NC|CC BY-NC-SA|CC BY-NC-ND|CC BY-SA 4.0|cc-by-4.0|cc-by-nc-nd-4.0|CC BY 3.0 US|CC_BY_4.0|CC0|CC0 1.0|
CC0 1.0 Universal|CC0-1.0|Public Domain|PDDL-1.0|ODC-BY|MIT|Apache-2.0|Creative Commons Attribution 4.0 International License|
https://creativecommons.org/licenses/by-nc/4.0/|http://creativecommons.org/licenses/by-nc-nd/3.0/us/legalcode|
https://creativecommons.org/publicdomain/zero/1.0/|https://creativecommons.org/publicdomain/mark/1.0/""".replace(
    "\n", ""
).split("|")
NO = """unknown|none|n/a|CC|CC BY?|not CC BY|CC BY or all rights reserved|all rights reserved|proprietary|NC|BY|by 4.0|CC NC|
CC BY 9.0|CC BY-ND-SA|CC BY-SA-ND|research use only|other|see paper|http://example.org/licenses/by/4.0|
https://creativecommons.org.example.org/licenses/by/4.0/|CC BY 4.0 for the text only""".replace("\n", "").split("|")


@pytest.mark.parametrize("licence", YES)
def test_may_be_passed_on(licence):
    assert allows_copies(licence) and allows_copies(f"  {licence.upper()} ")


@pytest.mark.parametrize("licence", [*NO, "", " ", None, 4, float("nan")])
def test_may_not(licence):
    assert not allows_copies(licence)


@given(st.text(max_size=40))
def test_nothing_but_a_known_licence_is_accepted(text):
    if allows_copies(text):
        known = (
            "cc",
            "creative commons",
            "public domain",
            "pdm",
            "pddl",
            "odc",
            "odbl",
            "mit",
            "bsd",
            "apache",
            "us gov",
        )
        assert any(word in text.lower().replace("-", " ").replace("_", " ") for word in known)
