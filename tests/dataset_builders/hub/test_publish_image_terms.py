"""Licences that permit redistribution, spelled as sources spell them."""

from dataset_builders.images.licences import allows_redistribution

# Non-commercial and no-derivatives licences count: they permit passing on an unchanged copy.
OPEN_LICENCES = """CC BY|CC BY-NC|CC BY-NC-SA|CC BY-NC-ND|CC BY-SA 4.0|cc-by-4.0|cc-by-nc-nd-4.0|CC BY 3.0 US|CC_BY_4.0|CC0|CC0 1.0|
CC0 1.0 Universal|CC0-1.0|Public Domain|PDDL-1.0|ODC-BY|MIT|Apache-2.0|Creative Commons Attribution 4.0 International License|
https://creativecommons.org/licenses/by-nc/4.0/|http://creativecommons.org/licenses/by-nc-nd/3.0/us/legalcode|
https://creativecommons.org/publicdomain/zero/1.0/|https://creativecommons.org/publicdomain/mark/1.0/""".replace(
    "\n", ""
).split("|")

# Texts that only resemble an open licence, or that restrict one.
RESTRICTED_LICENCES = """unknown|none|n/a|CC|CC BY?|not CC BY|CC BY or all rights reserved|all rights reserved|proprietary|
NC|BY|by 4.0|CC NC|
CC BY 9.0|CC BY-ND-SA|CC BY-SA-ND|research use only|other|see paper|http://example.org/licenses/by/4.0|
https://creativecommons.org.example.org/licenses/by/4.0/|CC BY 4.0 for the text only""".replace("\n", "").split("|")


def test_open_licences_allow_redistribution():
    assert [
        licence
        for licence in OPEN_LICENCES
        if not (allows_redistribution(licence) and allows_redistribution(f"  {licence.upper()} "))
    ] == []


def test_other_licences_forbid_redistribution():
    assert [
        licence for licence in (*RESTRICTED_LICENCES, "", " ", None, 4, float("nan")) if allows_redistribution(licence)
    ] == []
