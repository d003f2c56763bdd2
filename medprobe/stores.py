"""Submit answers to a results store, load results as a table, compare two results."""

import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE
from eval_harness.records.result import Result
from eval_harness.store.comparison import Side, load_side, score_differences
from eval_harness.store.contents import StoredResult, scan_store
from eval_harness.store.results_table import tidy_table
from eval_harness.store.submit import Submitted, build_submission, submit_to_store

Source = str | os.PathLike[str]


def submit(
    answers: Source,
    to: Source,
    *,
    benchmark: str | None = None,
    model: str | None = None,
    data: Source | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    with_questions: bool = False,
    account: str | None = None,
) -> Submitted:
    """Add answers to a results store, with scores recomputed from them.

    Identical answers are added only once.

    Args:
        answers: a run or its folder; or another harness's file of answers or log, which needs
            `benchmark` and `model`.
        to: the store, which is a folder, or ORG/NAME on the Hub (opens a pull request).
        benchmark: the benchmark that the answers in a file are for.
        model: display name of the model that gave the answers in a file.
        data: dataset folder or Hub repository.
        split: the split that the answers in a file are for.
        extraction: how the answers in a file are read, "ours" or "official".
        kind: kind of the model in a file, "open", "proprietary", "medical" or "human".
        reproduced: True if you own the store and ran the model yourself.
        with_questions: also store the questions.
        account: the submitter, for a store in a folder [this user].

    Returns:
        `location`, whether it is `new` there, and the `submission` (`result`, `notes`, `flags`).

    Raises:
        BadInput: the answers have problems, which the message lists; nothing was added.
    """
    return submit_to_store(
        Path(answers), str(os.fspath(to)), benchmark, model, None if data is None else os.fspath(data), split,
        extraction=extraction, kind=kind, reproduced=reproduced, with_questions=with_questions, account=account,
        published=published_name_kinds(),
    )  # fmt: skip


def published_name_kinds() -> dict[str, str | None]:
    """Return the kind of each model in the papers' tables, by name.

    The names of submitted models are compared with these.
    """
    from leaderboard_space.data.published_results import read_table

    # A row has the names that each paper gives to a model.
    return {
        name: row["kind"] or None
        for row in read_table("models")
        for column, names in row.items()
        if column not in ("kind", "parameters")
        for name in filter(None, names.split("; "))
    }


def load_results(*sources: Source, published: bool = False) -> pd.DataFrame:
    """Load the results of runs and stores, and those of the papers, as one table.

    There is one row per result, facet value and metric, overall scores first. Columns: `benchmark`,
    `split`, `model`, `kind` (measured, recomputed, printed, aggregate), `method`, `prompt`,
    `variant` (whatever else distinguishes a result), `metric`, `headline` (True for the metric that
    the benchmark is ranked by), `facet` and `facet_value` (missing for overall scores), `value`
    with its 95 % interval `low` to `high` (percent, or a count), `chance` with its interval
    `chance_low` to `chance_high`, `verdict` against chance, `n`, `n_cases`, `n_effective`,
    `no_score` (why there is no value or verdict), `part` (what was asked, if not everything),
    `withdrawn` (the reason, if it was), `source`, `table`, `note`.

    Args:
        sources: run folders, folders of them (runs/), and stores: a folder with `results/`, or
            ORG/NAME on the Hub. A result in several of them is listed once.
        published: append the papers' numbers and those recomputed from published answers; without
            `sources`, return only these.

    Raises:
        BadInput: a source contains no results. Files that cannot be read are skipped with a
            warning.
    """
    if not sources and not published:
        raise BadInput("load_results: name a run or a store, or pass published=True for the papers' numbers.")
    results: dict[str, Result] = {}
    withdrawn: dict[str, str] = {}
    # The same result may be in a run folder and in a store, so it is identified by its content.
    for source in sources:
        stored, problems = _results_of(os.fspath(source))
        for problem in problems:
            warnings.warn(f"skipped: {problem}", stacklevel=2)
        for entry in stored:
            result = entry.result
            # The dataset's location is left out, since stores do not keep that of a local folder.
            identity = result.model_dump_json(
                include={"kind", "benchmark", "model", "method", "scores"},
                exclude={"benchmark": {"repo"}},
            )
            results.setdefault(identity, result)
            # One withdrawn copy suffices, even if another copy was loaded first.
            if entry.withdrawal is not None:
                withdrawn[identity] = entry.withdrawal.reason
    reasons = {at: withdrawn[identity] for at, identity in enumerate(results) if identity in withdrawn}
    if published:
        from leaderboard_space.data.published_results import published_results

        return tidy_table([*results.values(), *published_results()], reasons)
    return tidy_table(results.values(), reasons)


def _results_of(source: str) -> tuple[list[StoredResult], list[str]]:
    """Return the results of a run folder, a folder of run folders, or a store.

    The second value describes the files that cannot be read.
    """
    path = Path(source)
    if (path / RESULT_FILE).is_file() or path.is_file():
        return [StoredResult.read(path if path.is_file() else path / RESULT_FILE)], []
    runs = (
        []
        if (path / "results").is_dir()
        else sorted({*path.glob(f"*/{RESULT_FILE}"), *path.glob(f"*/*/{RESULT_FILE}")})
    )
    # A folder without finished runs may be a store, or contain interrupted runs.
    if not runs:
        if path.joinpath(RUN_FILE).is_file() or any(path.glob(f"*/{RUN_FILE}")):
            raise BadInput(
                f"{source}: contains no finished run. Repeat the `medprobe eval` of an interrupted one to finish it."
            )
        return scan_store(source)
    stored, problems = [], []
    for file in runs:
        try:
            stored.append(StoredResult.read(file))
        except BadInput as error:
            problems.append(str(error))
    return stored, problems


def compare(a: Source, b: Source) -> pd.DataFrame:
    """Compare two results.

    The table has one row per metric that both have. Columns: `metric`; `a`, `b` and `difference`
    (a - b), in percent or counts; `low` and `high`, the 95 % interval of the difference in
    percentage points; `p`, the two-sided p-value; `test`, which is paired if both have answers to
    the same questions, and otherwise treats the scores as independent; `note`, why two values are
    not compared. Values that do not apply are missing.

    Args:
        a, b: a run or its folder, a result.json, a file of answers (to the other side's questions),
            or "published:MODEL/BENCHMARK/METHOD/Table 1".

    Raises:
        BadInput: a source is not a result (a printed number is for `why`), or the results are on
            different benchmarks.
    """
    side, other_side = load_comparison_sides(a, b)
    if isinstance(other_side, str):
        raise BadInput(f"compare: {other_side} is a number, not a result. `medprobe.why` explains printed numbers.")
    return score_differences(side, other_side)


def why(
    a: Source,
    b: Source | float,
    *,
    metric: str | None = None,
    benchmark: str | None = None,
    data: Source | None = None,
    split: str | None = None,
) -> pd.DataFrame:
    """Say what each difference between two results is worth, in points of a score.

    One row per cause, the largest first, and last the row `different answers`: `factor`; `points`,
    its contribution to a - b (the column adds up to the difference); `low`, `high`, the 95 %
    interval of different answers; `answers`, how many answers are concerned; `detail`. Of a printed
    number, one row per factor that alone brings the score to it.

    Args:
        a, b: a run or its folder, a result.json, or a file of answers in any format that `evaluate`
            reads. `b` may also be a paper's row, or a printed number ("48.90", with its decimals).
        metric: the score to explain [the benchmark's headline score].
        benchmark, data, split: what files of answers answer [those of the other side].

    Raises:
        BadInput: no answers, two benchmarks, or no question in common.
    """
    from eval_harness.store.cause_report import cause_table, explain_difference

    location = None if data is None else os.fspath(data)
    sides = load_comparison_sides(a, b, benchmark, location, split)
    return cause_table(explain_difference(*sides, metric))


def load_comparison_sides(
    a: Source, b: Source | float, benchmark: str | None = None, data: str | None = None, split: str | None = None
) -> tuple[Side, Side | str]:
    """Load both sides of a comparison.

    Args:
        a, b: as for `why`.
        benchmark, data, split: what files of answers answer; the rest is taken from the other
            side.

    Returns:
        Both sides; the second is a text if it is a printed number.

    Raises:
        BadInput: not a result, or a file of answers to an unknown benchmark.
    """
    from eval_harness.store.cause_report import PRINTED_NUMBER

    other_source = str(b) if isinstance(b, (int, float)) else os.fspath(b)
    is_number = PRINTED_NUMBER.fullmatch(other_source) is not None and not Path(other_source).exists()
    sources = [os.fspath(a)] if is_number else [os.fspath(a), other_source]
    sides = {source: load_comparison_side(source) for source in sources if not _is_answer_file(Path(source))}
    for loaded_side in sides.values():
        stated = loaded_side.result.benchmark
        benchmark, data, split = benchmark or stated.name, data or stated.repo, split or stated.split
    for source in sources:
        if source not in sides:
            sides[source] = _load_answer_file(Path(source), benchmark, data, split)
    return sides[sources[0]], other_source if is_number else sides[other_source]


def _is_answer_file(path: Path) -> bool:
    """Return True for a file that is not a result.json."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b'"schema_version"' not in file.read(200)


def _load_answer_file(path: Path, benchmark: str | None, data: str | None, split: str | None) -> Side:
    """Score a file of answers, as `submit` would, and load it as a side."""
    if benchmark is None:
        raise BadInput(f"{path}: not a result. For files of answers, give the --benchmark which the files answer.")
    submission = build_submission(path, benchmark, path.stem, data, split)
    submission.check(path, "It cannot be compared.")
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-compare-") as folder:
        files = submission.sent.content_by_name() | dict(submission.derived)
        for name, content in (files | {"questions.parquet": submission.questions or b""}).items():
            (folder / name).write_bytes(content)
        return replace(load_side(str(folder), list), source=str(path))


def load_comparison_side(source: Source) -> Side:
    """Load one side of a comparison; see `compare`.

    Raises:
        BadInput: the source is not a result.
    """
    from leaderboard_space.data.published_results import published_results

    return load_side(os.fspath(source), published_results)
