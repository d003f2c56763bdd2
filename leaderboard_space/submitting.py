"""The Submit tab: the question sets that accept answers, uploaded files scored on them, and the
form as Gradio components.

Only the answers of an upload are used: questions, key and fingerprint are the target's. A
submission is sent to the store, or packed into a submission bundle. Every event of the form is an
API function too (`check_submission`, `submit`), so programs can do what visitors do.

See also: the page's text (`views/submit.py`), reading untrusted files and delivering submissions
(`eval_harness/store/`).
"""

import hashlib
import io
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gradio as gr
from gradio.utils import get_upload_folder

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, temporary_folder
from eval_harness.answer_files.untrusted import check_file
from eval_harness.derive.run_files import RUN_FILE, SUBMITTED_FILES
from eval_harness.records.limits import MAX_FILE_BYTES
from eval_harness.records.result import Benchmark
from eval_harness.store.contents import Submission, is_hub_store
from eval_harness.store.dataset_lookup import Dataset, check_chosen_dataset, load_split
from eval_harness.store.hidden_test import HiddenTest
from eval_harness.store.sandbox import run_in_turn
from eval_harness.store.similarity import duplicate_flags
from eval_harness.store.submit import (
    FOLDER_FILES,
    JOURNAL_NAME,
    MAX_RESULT_BYTES,
    add_to_store,
    examine_answer_file,
    examine_folder,
)
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import read_questions
from leaderboard_space.data.published_results import published_models
from leaderboard_space.data.sections import Entry, canonical_name, group_entries
from leaderboard_space.export import named_file
from leaderboard_space.html import plural
from leaderboard_space.serving import on_space
from leaderboard_space.views import submit as words
from leaderboard_space.views.parts import MODEL_KIND_TITLES, benchmark_address, model_address

ACCEPTED_FILES = "Give one file of answers; or run.json and answers.parquet of a run folder or a submission."

HIDDEN_TEST_KEY = "hidden test"
"""Key of the hidden test among the question sets."""

MAX_CHECKS, MAX_SENDS = 18, 18
"""Maximum numbers of concurrent checks and submissions.

Most of them wait: for their turn to be read (`sandbox.QUICK_SLOTS`), or for the Hub. Each occupies
one of Gradio's 40 threads.
"""

PROGRAMS_ONLY: Literal["undocumented"] = "undocumented"
"""Programs may use the form's two buttons too (`gradio_client`). Agents cannot: files cannot be
sent over MCP, so its server, which lists documented functions, does not list these."""


@dataclass(frozen=True)
class Target:
    """A question set that accepts answers.

    `dataset` loads its questions; it raises BadInput if they cannot be read.
    """

    benchmark: Benchmark
    dataset: Callable[[], Dataset]

    @property
    def label(self) -> str:
        """Display name: `GMAI-MMBench, validation, 22 questions (custom)`."""
        benchmark = self.benchmark
        name = BENCHMARK_LABELS[benchmark.family] if benchmark.name == benchmark.family else benchmark.name
        kind = {None: "", "official": "", "phantom": " (phantoms)", "custom": " (custom)"}[benchmark.origin]
        part = f", {benchmark.selection}" if benchmark.selection else ""
        return f"{name}, {benchmark.split}, {plural(benchmark.questions, 'question')}{part}{kind}"


def submission_targets(board: Board) -> dict[str, Target]:
    """List the question sets that accept answers: those of the board's trusted datasets, and those
    whose questions its store keeps with their results.

    Returns:
        Key -> target, trusted datasets first; a set in both is the trusted one.
    """
    targets, fingerprints = {}, set()
    for split in board.trusted.splits:
        if split.has_answers:
            benchmark = split.benchmark
            targets[f"{benchmark.repo}@{benchmark.split}"] = Target(
                benchmark, partial(load_split, split.repository, benchmark.split, is_vouched=True)
            )
            fingerprints.add(benchmark.fingerprint)
    for section in board.snapshot.all_sections:
        measured = [entry.result.benchmark for entry in section.entries if entry.result.kind == "measured"]
        fingerprint = section.fingerprint
        if (
            section.kind == "retired"
            or fingerprint is None
            or fingerprint in fingerprints
            or not measured
            or measured[0].selection
        ):
            continue
        path = board.questions_path(fingerprint)
        if path is not None and path.is_file():
            fingerprints.add(fingerprint)
            targets[f"store:{fingerprint}"] = Target(
                measured[0], partial(_store_dataset, measured[0], path, fingerprint)
            )
    return targets


def _store_dataset(benchmark: Benchmark, path: Path, fingerprint: str) -> Dataset:
    """Load the questions that a store keeps for its results."""
    questions = read_questions(path, fingerprint)
    about = (benchmark.repo, benchmark.revision, benchmark.validated)
    return Dataset(benchmark.name, benchmark.split, benchmark.family, questions, benchmark.origin, None, False, *about)


def examine_upload(
    files: Sequence[str | Path], target: Target, model: str = "", kind: str | None = None, client: str = ""
) -> Submission:
    """Score uploaded files on the questions of a target.

    Args:
        files: One file of answers (JSON Lines, CSV, Parquet), or the files of a run folder or
            submission (run.json and answers.parquet; further files of the folder are allowed).
        target: The question set.
        model: The model's name; required for a single file of answers.
        kind: The model's kind, if stated.
        client: Rate-limit key (one upload at a time).

    Returns:
        The submission; its `problems` list what must be fixed before it can be sent.

    Raises:
        BadInput: If nothing can be computed. The message contains no server-side path.
    """
    paths_by_name = {Path(file).name: Path(file) for file in files}
    if not paths_by_name:
        raise BadInput(f"no file was given. {ACCEPTED_FILES}")
    with temporary_folder(Path(tempfile.gettempdir()), "submission-") as folder:
        try:
            return run_in_turn(client, _examine_files, paths_by_name, folder, target.dataset(), model.strip(), kind)
        except BadInput as error:
            # Visitors must not see where this server keeps uploads.
            error.where = error.where and Path(str(error.where)).name
            raise


def _examine_files(
    paths_by_name: dict[str, Path], folder: Path, dataset: Dataset, model: str, kind: str | None
) -> Submission:
    """Examine uploaded files by their names.

    `folder`: where the files of a run folder are copied.
    """
    # Without run.json it is a plain file of answers.
    if RUN_FILE not in paths_by_name:
        if len(paths_by_name) > 1:
            raise BadInput(f"{len(paths_by_name)} files, but no run.json among them. {ACCEPTED_FILES}")
        if not model:
            raise BadInput("no model name was given. Say which model gave these answers.")
        (path,) = paths_by_name.values()
        return examine_answer_file(path, dataset, model, kind)
    # Further files of a run folder are accepted; anything else is refused by name.
    unknown = sorted(set(paths_by_name) - {*FOLDER_FILES, JOURNAL_NAME})
    if unknown:
        raise BadInput(f"{unknown[0]}: not a file of a run folder. {ACCEPTED_FILES}")
    for name, path in paths_by_name.items():
        if name == JOURNAL_NAME:  # a run's answers are in answers.parquet as well
            continue
        check_file(path, MAX_RESULT_BYTES if name.endswith(".json") else MAX_FILE_BYTES)
        shutil.copyfile(path, folder / name)
    return examine_folder(folder, partial(check_chosen_dataset, dataset))


def bundle_archive(submission: Submission) -> bytes:
    """Zip a submission in the layout of a store.

    The paths are `results/BENCHMARK/MODEL/RUN_ID/{run.json,answers.parquet}`.

    Returns:
        The archive; identical bytes for the same submission.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(submission.files().items()):
            assert path.rsplit("/", 1)[-1] in SUBMITTED_FILES
            # A fixed date, so that the same submission gives the same bytes.
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _write_bundle(submission: Submission) -> str:
    """Write the bundle to Gradio's upload folder, which it serves and cleans up (`delete_cache` in
    `app.py`).
    """
    content = bundle_archive(submission)
    target = (
        # The digest is hard to guess, and keeps the bundles of different submissions apart.
        Path(get_upload_folder()) / "bundles" / hashlib.sha256(content).hexdigest()[:32] / f"{submission.run_id}.zip"
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, content)
    return str(target)


class SubmitTab:
    """State of the tab.

    `may_write`: visitors act as the local user (board on loopback). `signs_in`: visitors can sign
    in. `takes`: submissions can be sent from here. Signing in grants no access to a folder on the
    server, so without `may_write` only a store on the Hub takes submissions.
    """

    def __init__(
        self,
        board: Board,
        store: str | Path | None,
        may_write: bool,
        hidden: HiddenTest | None = None,
    ) -> None:
        self.board, self.store, self.may_write, self.hidden = board, store, may_write, hidden
        self.published = {name: model.kind for name, model in published_models().items()}
        self.on_hub = store is not None and is_hub_store(str(store))
        can_sign_in = on_space() and bool(os.environ.get("OAUTH_CLIENT_ID"))
        self.signs_in = can_sign_in and (self.on_hub or hidden is not None)
        self.takes = store is not None and (may_write or (self.signs_in and self.on_hub))

    def choices(self) -> list[tuple[str, str]]:
        """List (label, key) of the question sets that accept answers."""
        choices = [(target.label, key) for key, target in submission_targets(self.board).items()]
        return [*choices, ("GMAI-MMBench, test (hidden answers)", HIDDEN_TEST_KEY)] if self.hidden else choices

    def page(self, request: Mapping[str, Any]) -> str:
        """Render the text above the form: the steps, and files to start from."""
        return words.page(self.lands(), self.choices(), self.store is not None, self.hidden is not None)

    def file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Return a file to start from (`name`, `text`, `type`).

        Args:
            request: `of`: template:KEY or ids:KEY.

        Raises:
            BadInput: If the question set is unknown.
        """
        kind, _, key = str(request.get("of")).partition(":")
        if key == HIDDEN_TEST_KEY and self.hidden:
            name, ids = "hidden-test", self.hidden.ids()
        else:
            target = submission_targets(self.board).get(key)
            if target is None:
                raise BadInput("this set of questions is no longer on the board. Reload the page.")
            name = f"{target.benchmark.name}-{target.benchmark.split}"
            ids = target.dataset().questions["question_id"].astype(str).tolist()
        if kind == "template":
            return named_file(f"{name}-template", "csv", words.template(ids))
        return named_file(f"{name}-ids", "txt", "\n".join([*ids, ""]))

    def lands(self) -> str:
        """Describe where a submission goes."""
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
        """Score the form's files.

        Args:
            key: The question set.
            files: Paths of the uploaded files.
            model: The model's name.
            kind: The model's kind.
            client: Rate-limit key (one upload at a time).

        Raises:
            BadInput: If nothing can be computed.
        """
        targets = submission_targets(self.board)
        if key not in targets:
            problem = (
                "choose the question set that the answers are for"
                if not key
                else f"{str(key)[:80]}: not a question set of this board"
            )
            raise BadInput(f"{problem}. There are: {'; '.join(targets) or 'none yet'}.")
        submission = examine_upload(files or [], targets[key], str(model or ""), kind or None, self._slot(client))
        if self.board.store is not None:
            submission.flags.extend(duplicate_flags(self.board.store, submission, published=self.published))
        return submission

    def _slot(self, client: str) -> str:
        """Return the rate-limit key of an upload: the client's, or a new one on a local board."""
        return uuid.uuid4().hex if self.may_write else client

    def check(
        self, key: str | None, files: list[str] | None, model: str | None, kind: str | None, client: str = ""
    ) -> tuple[Any, ...]:
        """Score the uploaded files.

        Returns:
            Updates of the form: report, Submit button, bundle, instructions, and the outcome as
            data.
        """
        no_submission = (gr.Button("Submit", interactive=False), gr.DownloadButton(visible=False), "")
        try:
            if key == HIDDEN_TEST_KEY and self.hidden:
                problems = self.hidden.check(_single_file(files), self._slot(client))
                report = words.hidden_checked(problems, self.hidden.per_day)
                can_score = not problems and (self.signs_in or self.may_write)
                outcome = {"ok": not problems, "problems": problems}
                return (
                    report,
                    gr.Button("Score (uses one of today's attempts)", interactive=can_score),
                    *no_submission[1:],
                    outcome,
                )
            submission = self.received(key, files, model, kind, client)
        except BadInput as error:
            return words.refusal([str(error)]), *no_submission, outcome_data(None, [str(error)])
        path = None if submission.problems else _write_bundle(submission)
        add = words.how_to_add(self.command(submission.folder)) if path else ""
        return (
            words.report(submission),
            gr.Button("Submit", interactive=self.takes and not submission.problems),
            gr.DownloadButton(value=path, visible=path is not None),
            add,
            outcome_data(submission, submission.problems),
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
        """Score the files again, exactly as `check` does, and deliver the submission.

        Args:
            key: The question set.
            files: Paths of the uploaded files.
            model: The model's name.
            kind: The model's kind.
            token: Hub token of the signed-in visitor; None for the local user.
            user: Account of the signed-in visitor; None for the local user.
            client: Rate-limit key (one upload at a time).

        Returns:
            Updates of the form: the result of submitting, the report (cleared once submitted), and
            the outcome as data.
        """
        try:
            if key == HIDDEN_TEST_KEY and self.hidden:
                submitter = user or ("this-machine" if self.may_write else "")
                score = self.hidden.score(_single_file(files), str(model or "").strip(), submitter)
                outcome = {"ok": True, "problems": [], **asdict(score)}
                return words.hidden_scored(score), "", outcome
            if not self.takes or self.store is None:
                raise BadInput(
                    "submissions cannot be sent from here. Download the submission bundle and submit it yourself."
                )
            if not token and not self.may_write:
                raise BadInput(
                    "you are not signed in. Sign in above, or download the submission bundle and submit it yourself."
                )
            submission = self.received(key, files, model, kind, client)
            if submission.problems:
                return (
                    words.refusal(submission.problems, "Not submitted."),
                    gr.skip(),
                    outcome_data(submission, submission.problems),
                )
            done = add_to_store(submission, self.store, token, published=self.published)
        except BadInput as error:
            return words.refusal([str(error)], "Not submitted."), gr.skip(), outcome_data(None, [str(error)])
        location = done.location if self.on_hub else submission.folder
        if not self.on_hub:
            with suppress(OSError, BadInput):  # so that the row exists when the visitor follows the link
                self.board.refresh()
        report = words.submission_outcome(
            location,
            done.new,
            self.on_hub,
            self.row_of(submission),
            model_address(canonical_name(submission.result.model.name)),
        )
        return report, "", {**outcome_data(submission, []), "place": location, "new": done.new}

    def row_of(self, submission: Submission) -> str:
        """Return the address of a submission's row on the board."""
        (section,) = group_entries([Entry(submission.run_id, submission.result)], self.board.trusted.is_replaced)
        return benchmark_address(section, every=True)

    def command(self, folder: str) -> str:
        """Return the command that submits a bundle.

        A server-side path would be meaningless to visitors.
        """
        return f"medprobe submit {folder} --to {self.store if self.on_hub else 'STORE'}"

    # Gradio calls these three, and passes request, token and profile because of their annotations.

    def check_for_visitor(
        self, key: str | None, files: list[str] | None, model: str | None, kind: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        """`check` for the client that sent the request."""
        return self.check(key, files, model, kind, _client_address(request))

    def send_for_visitor(
        self, key: str | None, files: list[str] | None, model: str | None, kind: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        """`send` for the local user."""
        return self.send(key, files, model, kind, client=_client_address(request))

    def send_for_account(
        self,
        key: str | None,
        files: list[str] | None,
        model: str | None,
        kind: str | None,
        token: gr.OAuthToken | None,
        profile: gr.OAuthProfile | None,
        request: gr.Request,
    ) -> tuple[Any, ...]:
        """`send` for a visitor who may have signed in."""
        account = profile.username if profile else None
        client = account or _client_address(request)
        return self.send(key, files, model, kind, token.token if token else None, account, client)


def _single_file(files: Sequence[str] | None) -> Path:
    if not files or len(files) != 1:
        raise BadInput("upload one file of answers to the hidden test.")
    return Path(files[0])


def outcome_data(submission: Submission | None, problems: Sequence[str]) -> dict[str, Any]:
    """Describe the outcome for programs.

    Returns:
        `ok`, `problems` and, without problems, `scores`, `statuses`, `flags`, `notes`, `folder`.
    """
    outcome: dict[str, Any] = {"ok": submission is not None and not problems, "problems": list(problems)}
    if submission is not None and not problems:
        scores = {name: score.model_dump() for name, score in submission.result.scores.items()}
        outcome |= {
            "scores": scores,
            "statuses": submission.result.statuses,
            "flags": submission.flags,
            "notes": submission.notes,
            "folder": submission.folder,
        }
    return outcome


def draw_form(tab: SubmitTab) -> tuple[gr.Row, gr.Dropdown]:
    """Create the form.

    Returns:
        The form's row (hidden if no question set accepts answers) and the question set field, both
        updated when the tab opens.
    """
    choices = tab.choices()
    with gr.Row(elem_id="mp-submit", visible=bool(choices)) as form_row:
        with gr.Column(scale=2, min_width=320):
            target = gr.Dropdown(
                choices, value=choices[0][1] if choices else None, label="Questions", allow_custom_value=True,
            )  # fmt: skip
            model = gr.Textbox(label="Model", placeholder="Name to show on the board", max_lines=1, max_length=100)
            kind = gr.Dropdown(
                [("not stated", ""), *((name, kind) for kind, name in MODEL_KIND_TITLES.items() if kind != "baseline")],
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
            # The submit outcome has its own slot, so a slower check cannot overwrite it.
            sent = gr.HTML("", apply_default_css=False, js_on_load=None, elem_id="mp-sent")
            report = gr.HTML("", apply_default_css=False, js_on_load=None, elem_id="mp-report")
            ready = gr.DownloadButton("Download the submission bundle", visible=False, size="sm", elem_id="mp-ready")
            instructions = gr.HTML("", apply_default_css=False, js_on_load=None)
    outcome = gr.JSON(visible=False)
    form: list[Any] = [target, files, model, kind]
    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    # After an edit the checked files may be out of date: disable Submit and clear its outcome.
    for changed in (target.input, files.change, model.change, kind.change):
        changed(lambda: (gr.Button(interactive=False), ""), None, [send, sent], **quick)
    # Scoring does not change the form: leave Submit enabled, or a click during this event would be
    # lost.
    for pressed in (check.click, model.submit):
        pressed(lambda: "", None, sent, **quick)
    checked = [report, send, ready, instructions, outcome]
    gr.on(
        (check.click, model.submit),
        tab.check_for_visitor, form, checked, api_name="check_submission", api_visibility=PROGRAMS_ONLY,
        concurrency_limit=MAX_CHECKS, show_progress="minimal", show_progress_on=report,
    )  # fmt: skip
    send.click(
        tab.send_for_account if tab.signs_in else tab.send_for_visitor,
        form, [sent, report, outcome], api_name="submit", api_visibility=PROGRAMS_ONLY,
        concurrency_limit=MAX_SENDS, show_progress="minimal", show_progress_on=sent,
    )  # fmt: skip
    return form_row, target


def _client_address(request: gr.Request | None) -> str:
    """Return the address of a request's client.

    Behind the Hub's proxy, which all visitors of a Space share, it is in a header; elsewhere that
    header can be forged and is ignored.
    """
    forwarded = request.headers.get("x-forwarded-for", "") if request is not None and on_space() else ""
    client = getattr(request, "client", None)
    return forwarded.split(",")[0].strip() or str(getattr(client, "host", ""))
