"""Test submitting in a browser, from the upload to the board: real Space, real sign-in (OpenID
Connect), real Hub client, nothing mocked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from playwright.sync_api import expect

from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from eval_harness.store.verification import verify
from tests.browser import eventually
from tests.leaderboard_space.serving import board
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.openid import OpenIdProvider

pytestmark = pytest.mark.browser

RESULTS = {"repo_id": "ORG/results", "repo_type": "dataset"}


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    yield chromium.new_page()
    assert chromium.script_errors == []
    assert not [
        error for error in chromium.errors if error.startswith("http")
    ]  # no other server is contacted, in a Space too


@pytest.fixture
def hub(local_hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Act as the store's owner: put a dataset and an empty results store on the Hub."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo(**RESULTS)
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="results/README.txt", **RESULTS)
    return local_hub


def upload(page: Any, address: str, file: Path, model: str) -> None:
    """Reload the Submit tab, upload a file and have it scored."""
    page.goto("about:blank")  # an address that differs only in its fragment would not be loaded
    page.goto(f"{address}/#/submit")
    page.get_by_label("Model", exact=True).wait_for()
    page.locator("#mp-submit input[type=file]").first.set_input_files(str(file))
    page.locator("#mp-submit").get_by_text(file.name[:8]).first.wait_for()
    page.get_by_label("Model", exact=True).fill(model)
    page.locator("#mp-check").click()
    page.locator("#mp-report h2.finding").wait_for()


@pytest.mark.exhaustive
@pytest.mark.sources
def test_recorded_answers_go_from_the_upload_to_the_board(hub: Any, page: Any, sources: Path, tmp_path: Path) -> None:
    """These are 22 answers of a real model, of which 12 are right as a careful person reads
    them.
    """
    build("gmai-mmbench", source=sources / "gmai_mmbench", out=tmp_path / "gmai-mmbench", text_only=True)
    publish(tmp_path / "gmai-mmbench", "ORG/gmai-mmbench", private=True)
    recorded = sources / "gmai_mmbench" / "recorded_responses.jsonl"
    with OpenIdProvider("reader", READER) as provider:
        environment = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": CURATOR,
            "HF_HUB_DISABLE_XET": "1",
            **provider.environment,
        }
        with board("ORG/results", tmp_path / "space", ["ORG/gmai-mmbench"], **environment) as (address, _):
            upload(page, address, recorded, "Recorded model")
            report, sent = page.locator("#mp-report"), page.locator("#mp-sent")
            expect(report).to_contain_text(
                "Recorded model on gmai-mmbench, validation, 22 questions: ready to be submitted"
            )
            expect(report.get_by_role("row", name="Accuracy 54.5")).to_contain_text("32.2–75.6")
            page.locator("#mp-send").click()
            expect(sent).to_contain_text("you are not signed in")

            page.get_by_role("button", name="Sign in with Hugging Face").click()
            page.get_by_role("button", name="Logout (reader)").wait_for()
            assert provider.scopes == ["openid profile write-discussions"]
            upload(page, address, recorded, "Recorded model")
            page.locator("#mp-send").click()
            expect(sent).to_contain_text("A pull request is open")

            outcomes = verify("ORG/results@1", data=["ORG/gmai-mmbench"])  # the dataset is private
            assert [str(outcome.status) for outcome in outcomes] == ["added"], outcomes
            page.goto(f"{address}/#/b/gmai-mmbench?s=validation.published")
            sample = page.locator("#mp-gmai-mmbench").get_by_role("radio", name="Sample")

            def is_there() -> bool:  # the board checks by itself, without a restart
                page.reload()
                page.locator("#mp-gmai-mmbench table[data-table=leaderboard]").wait_for()
                return bool(sample.count())

            eventually(is_there, True)
            sample.click()
            line = page.locator(
                "#mp-gmai-mmbench table[data-table=leaderboard] tr[data-key]", has_text="Recorded model"
            )
            expect(line.locator(".val")).to_have_text("54.5")
