"""The Hub's limits on metadata are checked before anything is created there, and every card that we write keeps it."""

import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.contents.card import SIZE_CATEGORIES, size_category
from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository_layout import check_header, read_card
from dataset_builders.schema import COMMON
from tests.localhub.accounts import CURATOR
from tests.localhub.small_repo import small_repo


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_cards_of_built_sets_keep_the_limits_and_explain_every_column(benchmark, tmp_path):
    build(benchmark, out=tmp_path / "set", text_only=True)
    header, body = read_card(tmp_path / "set" / "README.md")
    check_header(tmp_path / "set" / "README.md", header, "dataset")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", body, re.M)
    explained = {name: meaning.strip() for name, meaning in rows}
    first = next(info for info in header["dataset_info"] if info["config_name"] == "questions_text")
    assert {feature["name"] for feature in first["features"]} <= explained.keys()
    assert all(explained.values()) and explained["case_id"] == COMMON["case_id"].meaning


@pytest.mark.sources
def test_a_set_of_the_authors_files_names_its_terms_in_a_file_beside_the_card(sources, tmp_path):
    build("halt-medvqa", source=sources / "halt_medvqa", out=tmp_path / "set", text_only=True)
    header, body = read_card(tmp_path / "set" / "README.md")
    check_header(tmp_path / "set" / "README.md", header, "dataset")
    assert f"({header['license_link']})" in body
    assert "| unknown | 1,736 |" in (tmp_path / "set" / header["license_link"]).read_text()


def test_the_space_of_the_board_keeps_the_limits():
    path = Path(__file__).parents[3] / "leaderboard_space" / "README.md"
    check_header(path, read_card(path)[0], "space")


@pytest.mark.parametrize(
    ("rows", "size"), [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (2_000_000, "1M<n<10M"), (10**12, "n>1T")]
)
def test_sizes_have_the_hubs_names(rows, size):
    assert size_category(rows) == size


WORDS = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), min_size=1, max_size=90)


@given(
    name=st.sampled_from(
        ["license_link", "license_name", "short_description", "colorFrom", "size_categories", "emoji"]
    ),
    value=WORDS | st.sampled_from(["LICENSE", "gray", "n>1T", "1K<n<10K", "\N{STETHOSCOPE}", "\N{STETHOSCOPE} x"]),
)
@settings(max_examples=200, deadline=None)
def test_a_value_is_taken_where_the_hub_takes_it(name, value, tmp_path_factory):
    kind = "space" if name in ("short_description", "colorFrom", "emoji") else "dataset"
    takes = {
        "license_link": value in ("LICENSE", "LICENSE.md")
        or (value.startswith(("http://", "https://")) and not re.search(r"\s", value)),
        "license_name": set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-"),
        "short_description": len(value) <= 60,
        "colorFrom": value in ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"),
        "size_categories": value in SIZE_CATEGORIES,
        "emoji": value == "\N{STETHOSCOPE}",
    }[name]
    path = tmp_path_factory.getbasetemp() / "README.md"
    if takes:
        check_header(path, {name: value}, kind)
    else:
        with pytest.raises(BadInput, match=f"{name}: .*: the Hub takes "):
            check_header(path, {name: value}, kind)


def test_a_card_that_the_hub_would_refuse_creates_nothing(local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    folder = small_repo(tmp_path / "small")
    header, body = read_card(folder / "README.md")
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(header | {'license_link': 'README.md#terms'})}---\n{body}")
    with pytest.raises(BadInput, match=r"license_link: 'README.md#terms': the Hub takes `LICENSE`"):
        publish(folder, "ORG/refused")
    assert not HfApi(endpoint=local_hub.endpoint, token=CURATOR).repo_exists("ORG/refused", repo_type="dataset")
