"""Check that every card respects the Hub's limits on metadata and explains every column."""

import re
import shutil

import pytest
from huggingface_hub import DatasetCard

from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.build import build
from dataset_builders.schema import COMMON_COLUMNS

LICENSE_NAME, LICENSE_LINK = r"[a-z0-9.-]+", r"LICENSE(\.md)?|https?://\S+"
"""Accepted by the Hub (see its reference of repository cards)."""


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_cards_are_valid_and_explain_every_column(benchmark, publishable):
    card = DatasetCard.load(publishable / benchmark / "README.md")
    assert re.fullmatch(LICENSE_NAME, card.data.license_name) and re.fullmatch(LICENSE_LINK, card.data.license_link)
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", card.text, re.M)
    explained = {name: meaning.strip() for name, meaning in rows}
    assert all(explained.values()) and explained["case_id"] == COMMON_COLUMNS["case_id"].meaning


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_custom_card_omits_benchmark_texts(benchmark, publishable, tmp_path):
    source = tmp_path / "source"
    # A custom set needs a key for each question; GMAI-MMBench's test split has none.
    shutil.copytree(publishable / "sources" / benchmark, source, ignore=shutil.ignore_patterns("*_TEST_*"))
    (source / "about.yaml").write_text("deidentification: drawn by a program\nlicense: our own terms\n")
    build(benchmark, name="own-set", source=source, out=tmp_path / "set", eval_yaml=True)
    facts = spec(benchmark).card

    # Phrases that would be wrong in a card of custom data.
    of_benchmark = [
        facts.limits,
        facts.licence,
        facts.origin_note,
        "public for years",
        "ROCO",
        "176 pairs",
        "complete official",
    ]
    for file in ("README.md", "LICENSE.md", "eval.yaml"):
        text = " ".join((tmp_path / "set" / file).read_text().split()) if (tmp_path / "set" / file).is_file() else ""
        assert not [words for words in of_benchmark if words and " ".join(words.split()) in text], file

    card = (tmp_path / "set" / "README.md").read_text()
    assert "our own terms" in card
    if benchmark != "gmai-mmbench":  # its table of questions is read as that of any VQA set
        assert f"The format is that of {facts.title}" in card and facts.summary in card
    official = (publishable / benchmark / "README.md").read_text()

    # The same phrases do occur in the card of the benchmark itself.
    assert all(words in official for words in (facts.limits, facts.origin_note, "public for years"))


@pytest.mark.sources
def test_licence_file_lists_image_licences(sources, tmp_path):
    build("halt-medvqa", source=sources / "halt_medvqa", out=tmp_path / "set", text_only=True)
    card = DatasetCard.load(tmp_path / "set" / "README.md")
    assert f"({card.data.license_link})" in card.text
    assert "| unknown | 1,736 |" in (tmp_path / "set" / card.data.license_link).read_text()
