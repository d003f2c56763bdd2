"""The Submit tab as Gradio components. Wiring only: what is computed is in `intake.py`, what is said in `views/submit.py`.

Every event is a function of the API too (`check_submission`, `submit`), so a program can do what a person does here.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import gradio as gr
from gradio.utils import get_upload_folder

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.store.folder_store import duplicate_flags
from eval_harness.store.hidden_test import HiddenTest
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission
from eval_harness.store.submit import add_to_store
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import canonical_name
from leaderboard_space.data.published_results import published_models
from leaderboard_space.data.store.sections import Entry, group_entries
from leaderboard_space.data.store.trusted_data import TrustedData
from leaderboard_space.serving import on_space
from leaderboard_space.submitting.intake import bundle_archive, examine_upload, submission_targets
from leaderboard_space.views import submit as words
from leaderboard_space.views.parts import KINDS, benchmark_address, model_address

HIDDEN_TEST_KEY = "hidden test"
"""The key of the test with hidden answers among the sets of questions."""
MAX_CHECKS, MAX_SENDS = 18, 18
"""Submissions that are checked, and sent, at the same time, most of them waiting: for their turn to be read (`sandbox.AT_ONCE`, which
bounds the work), or for the Hub. Gradio answers with 40 threads."""


class SubmitTab:
    """What the tab needs to know. `may_write`: who reads this page may write to the store as this machine (it runs on their own).

    `signs_in`: readers can sign in. `takes`: submissions can be sent from here. Signing in gives no right to a folder of the machine that
    serves the page, so without `may_write` only a store on the Hub takes any.
    """

    def __init__(
        self,
        board: Board,
        store: str | Path | None,
        trusted: TrustedData,
        may_write: bool,
        hidden: HiddenTest | None = None,
    ) -> None:
        self.board, self.store, self.trusted, self.may_write, self.hidden = board, store, trusted, may_write, hidden
        self.published = {name: one.kind for name, one in published_models().items()}
        self.on_hub = store is not None and is_hub_store(str(store))
        can_sign_in = on_space() and bool(os.environ.get("OAUTH_CLIENT_ID"))
        self.signs_in = can_sign_in and (self.on_hub or hidden is not None)
        self.takes = store is not None and (may_write or (self.signs_in and self.on_hub))

    def choices(self) -> list[tuple[str, str]]:
        """(label, key) of what answers can be submitted for."""
        found = [(target.label, key) for key, target in submission_targets(self.board, self.trusted).items()]
        return [*found, ("GMAI-MMBench, test (hidden answers)", HIDDEN_TEST_KEY)] if self.hidden else found

    def page(self, request: Mapping[str, Any]) -> str:
        """What stands above the form: how it goes, and the files that help to fill it in."""
        return words.page(self.lands(), self.choices(), self.store is not None)

    def file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """A file to start from (`name`, `text`, `type`). `of`: template:KEY or ids:KEY. Raises BadInput for an unknown set."""
        what, _, key = str(request.get("of")).partition(":")
        if key == HIDDEN_TEST_KEY and self.hidden:
            name, ids = "hidden-test", self.hidden.ids()
        else:
            target = submission_targets(self.board, self.trusted).get(key)
            if target is None:
                raise BadInput("this set of questions is no longer on the board. Reload the page.")
            name = f"{target.benchmark.name}-{target.benchmark.split}"
            ids = target.dataset().questions["question_id"].astype(str).tolist()
        if what == "template":
            return {"name": f"medprobe-{name}-template.csv", "text": words.template(ids), "type": "text/csv"}
        return {"name": f"medprobe-{name}-ids.txt", "text": "\n".join([*ids, ""]), "type": "text/plain"}

    def lands(self) -> str:
        """Where a submission goes, in words."""
        if self.store is None:
            return "This board has no store of its own; the submission bundle can be downloaded."
        if self.takes and self.signs_in:
            return "A clean submission becomes a pull request in your name, which the store's owner verifies."
        if not self.takes:
            return "A clean submission is made into a submission bundle, with the command that submits it."
        if self.on_hub:
            return "A clean submission becomes a pull request in the name of this machine's Hub token."
        return "A clean submission is added to the store on this machine."

    def received(
        self, key: str | None, files: Sequence[str] | None, model: str | None, kind: str | None, client: str = ""
    ) -> Submission:
        """The submission that the form makes; of one `client` one is read at a time. Raises BadInput."""
        known = submission_targets(self.board, self.trusted)
        if key not in known:
            said = (
                "choose the question set that the answers are for"
                if not key
                else f"{str(key)[:80]}: not a question set of this board"
            )
            raise BadInput(f"{said}. There are: {'; '.join(known) or 'none yet'}.")
        found = examine_upload(files or [], known[key], str(model or ""), kind or None, self._slot(client))
        if self.board.store is not None:
            found.flags.extend(duplicate_flags(self.board.store, found, published=self.published))
        return found

    def _slot(self, client: str) -> str:
        """Whose turn a reading takes: the client's, and on their own machine each its own."""
        return uuid.uuid4().hex if self.may_write else client

    def check(
        self, key: str | None, files: list[str] | None, model: str | None, kind: str | None, client: str = ""
    ) -> tuple[Any, ...]:
        """Score the uploaded files: (report, whether they can be submitted, the bundle, what to do with it, the outcome as data)."""
        nothing = (gr.Button("Submit", interactive=False), gr.DownloadButton(visible=False), "")
        try:
            if key == HIDDEN_TEST_KEY and self.hidden:
                problems = self.hidden.check(_single_file(files), self._slot(client))
                shown = words.hidden_checked(problems, self.hidden.per_day)
                can_score = not problems and (self.signs_in or self.may_write)
                told = {"ok": not problems, "problems": problems}
                return shown, gr.Button("Use a scoring", interactive=can_score), *nothing[1:], told
            found = self.received(key, files, model, kind, client)
        except BadInput as error:
            return words.refused([str(error)]), *nothing, outcome_data(None, [str(error)])
        path = None if found.problems else _write_bundle(found)
        add = words.how_to_add(self.command(found.folder)) if path else ""
        return (
            words.report(found),
            gr.Button("Submit", interactive=self.takes and not found.problems),
            gr.DownloadButton(value=path, visible=path is not None),
            add,
            outcome_data(found, found.problems),
        )

    def send(
        self,
        key: str | None,
        files: list[str] | None,
        model: str | None,
        kind: str | None,
        token: str | None = None,
        user: str | None = None,
        client: str = "",
    ) -> tuple[Any, ...]:
        """Compute it again, exactly as `check` did, and deliver it: (what became of it, the report, which goes once it is submitted,
        the outcome as data).

        `token`, `user`: of who is signed in; None is this machine, where `may_write` says that this is the user.
        """
        try:
            if key == HIDDEN_TEST_KEY and self.hidden:
                who = user or ("this-machine" if self.may_write else "")
                score = self.hidden.score(_single_file(files), str(model or "").strip(), who)
                told = {"ok": True, "problems": [], **asdict(score)}
                return words.hidden_scored(score), "", told
            if not self.takes or self.store is None:
                raise BadInput(
                    "submissions cannot be sent from here. Download the submission bundle and submit it yourself."
                )
            if not token and not self.may_write:
                raise BadInput(
                    "you are not signed in. Sign in above, or download the submission bundle and submit it yourself."
                )
            found = self.received(key, files, model, kind, client)
            if found.problems:
                return words.refused(found.problems, "Not submitted."), gr.skip(), outcome_data(found, found.problems)
            done = add_to_store(found, self.store, token, published=self.published)
        except BadInput as error:
            return words.refused([str(error)], "Not submitted."), gr.skip(), outcome_data(None, [str(error)])
        where = done.location if self.on_hub else found.folder
        if not self.on_hub:
            with suppress(OSError, BadInput):  # its row is there when the reader follows the link
                self.board.refresh()
        shown = words.sent(
            where, done.new, self.on_hub, self.row_of(found), model_address(canonical_name(found.result.model.name))
        )
        return shown, "", {**outcome_data(found, []), "place": where, "new": done.new}

    def row_of(self, found: Submission) -> str:
        """The address of a submission's row on the board."""
        (section,) = group_entries([Entry(found.run_id, found.result)], self.trusted.is_replaced)
        return benchmark_address(section, every=True)

    def command(self, folder: str) -> str:
        """What submits a submission bundle from the command line. A path of this machine would say nothing to who reads the page."""
        return f"medprobe submit {folder} --to {self.store if self.on_hub else 'STORE'}"


def outcome_data(found: Submission | None, problems: Sequence[str]) -> dict[str, Any]:
    """What a program wants to know: `ok`, `problems`, and of what has none `scores`, `statuses`, `flags`, `notes`, `folder`."""
    said: dict[str, Any] = {"ok": found is not None and not problems, "problems": list(problems)}
    if found is not None and not problems:
        scores = {name: score.model_dump() for name, score in found.result.scores.items()}
        said |= {
            "scores": scores,
            "statuses": found.result.statuses,
            "flags": found.flags,
            "notes": found.notes,
            "folder": found.folder,
        }
    return said


def draw_form(tab: SubmitTab) -> tuple[gr.Row, gr.Dropdown]:
    """Draw the components in the tab that is open; returns what opening it should fill: the form (hidden where nothing can be handed in)
    and the choices."""
    choices = tab.choices()
    with gr.Row(elem_id="mp-submit", visible=bool(choices)) as whole:
        with gr.Column(scale=2, min_width=320):
            target = gr.Dropdown(
                choices, value=choices[0][1] if choices else None, label="Questions", allow_custom_value=True,
            )  # fmt: skip
            model = gr.Textbox(label="Model", placeholder="Name to show on the board", max_lines=1, max_length=100)
            kind = gr.Dropdown(
                [("not stated", ""), *((said, kind) for kind, said in KINDS.items() if kind != "baseline")],
                value="",
                label="Kind of model",
            )
            files = gr.File(
                file_count="multiple", type="filepath", height=150,
                label="Answers",
            )  # fmt: skip
            check = gr.Button("Score it", variant="primary", elem_id="mp-check")
            if tab.signs_in:
                gr.LoginButton(size="sm", elem_id="mp-sign-in")
            send = gr.Button("Submit", interactive=False, elem_id="mp-send")
        with gr.Column(scale=5, min_width=300):
            # What became of submitting has a place of its own: a scoring that ends later cannot replace it.
            sent = gr.HTML("", apply_default_css=False, js_on_load=None, elem_id="mp-sent")
            report = gr.HTML("", apply_default_css=False, js_on_load=None, elem_id="mp-report")
            ready = gr.DownloadButton("Download the submission bundle", visible=False, size="sm", elem_id="mp-ready")
            how = gr.HTML("", apply_default_css=False, js_on_load=None)
    told = gr.JSON(visible=False)
    form: list[Any] = [target, files, model, kind]
    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    # What was scored or submitted is no longer what stands in the form.
    for changed in (target.input, files.change, model.change, kind.change):
        changed(lambda: (gr.Button(interactive=False), ""), None, [send, sent], **quick)
    # The form is the same: a button that could be pressed stays so, or a click on it while this is under way would be lost.
    for pressed in (check.click, model.submit):
        pressed(lambda: "", None, sent, **quick)
    checked = [report, send, ready, how, told]
    gr.on(
        (check.click, model.submit),
        _with_client(tab.check, "check_submission"), form, checked, api_name="check_submission", api_visibility=PROGRAMS_ONLY,
        concurrency_limit=MAX_CHECKS, show_progress="minimal", show_progress_on=report,
    )  # fmt: skip
    send.click(
        _with_sign_in(tab) if tab.signs_in else _with_client(tab.send, "submit"),
        form, [sent, report, told], api_name="submit", api_visibility=PROGRAMS_ONLY,
        concurrency_limit=MAX_SENDS, show_progress="minimal", show_progress_on=sent,
    )  # fmt: skip
    return whole, target


PROGRAMS_ONLY: Literal["undocumented"] = "undocumented"
"""Programs may press the form's two buttons, too (`gradio_client`). Agents cannot: no file can be sent over MCP, so its server, which
offers what is documented, does not list them."""


def _with_client(function: Callable[..., tuple[Any, ...]], name: str) -> Any:
    def called(
        key: str | None, files: list[str] | None, model: str | None, kind: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        return function(key, files, model, kind, client=_client_address(request))

    called.__name__ = name  # as an agent's tool is called
    called.__annotations__ |= {"request": gr.Request}  # Gradio reads it to know what to hand over
    return called


def _client_address(request: gr.Request | None) -> str:
    """The address that a request came from. A Space stands behind the Hub's proxy, whose address all readers would share; elsewhere
    a header can be made up and is not read."""
    forwarded = request.headers.get("x-forwarded-for", "") if request is not None and on_space() else ""
    client = getattr(request, "client", None)
    return forwarded.split(",")[0].strip() or str(getattr(client, "host", ""))


def _with_sign_in(tab: SubmitTab) -> Any:
    def submit(
        key: str | None,
        files: list[str] | None,
        model: str | None,
        kind: str | None,
        token: gr.OAuthToken | None,
        profile: gr.OAuthProfile | None,
        request: gr.Request,
    ) -> tuple[Any, ...]:
        who = profile.username if profile else None
        return tab.send(key, files, model, kind, token.token if token else None, who, who or _client_address(request))

    # Gradio reads these to know what to hand over.
    submit.__annotations__ |= {
        "token": gr.OAuthToken | None, "profile": gr.OAuthProfile | None, "request": gr.Request
    }  # fmt: skip
    return submit


def _single_file(files: Sequence[str] | None) -> Path:
    if not files or len(files) != 1:
        raise BadInput("upload one file of answers to the hidden test.")
    return Path(files[0])


def _write_bundle(found: Submission) -> str:
    """Write the submission bundle where Gradio serves files from, and deletes them (`delete_cache` in `app.py`)."""
    content = bundle_archive(found)
    target = Path(get_upload_folder()) / "bundles" / hashlib.sha256(content).hexdigest()[:32] / f"{found.run_id}.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, content)
    return str(target)
