"""Select the questions of a dataset that a run asks.

See also: how they are asked (`runs/requests.py`, `runs/ask.py`).
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dataset_builders.benchmark_names import BENCHMARKS, fold_name, resolve_name
from dataset_builders.benchmarks import DEFAULT_SPLITS
from dataset_builders.errors import BadInput
from dataset_builders.facets import parse_question_facets, select_by_branches, select_by_facets
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.records.result import Benchmark, RunRequest

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Selection:
    """The questions of a run and their source.

    `left_out` describes what was not asked; None if nothing was left out.
    """

    repository: Repository
    split: str
    questions: pd.DataFrame
    left_out: str | None

    @property
    def fingerprint(self) -> str:
        return fingerprint_questions(self.questions)

    def benchmark(self) -> Benchmark:
        return Benchmark(
            name=self.repository.name,
            format=self.repository.family,
            repo=str(self.repository.data),
            revision=self.repository.revision,
            split=self.split,
            questions=len(self.questions),
            fingerprint=self.fingerprint,
            facets=digest_facets(self.questions),
            asked=digest_prompts(self.questions),
            origin=self.repository.origin,  # type: ignore[arg-type]  # pydantic checks it
            validated=self.repository.manifest.get("validated"),
            selection=self.left_out,
        )


def dataset_folder(benchmark: str, data: str | None) -> str:
    """Return the location of a benchmark's dataset.

    Names of folders and benchmarks are compared case-insensitively.

    Args:
        benchmark: a benchmark's name; with a slash (data/my-set, ORG/NAME) a dataset's location.
        data: the dataset (a folder, or ORG/NAME on the Hub), or the folder that contains it
            [data/].

    Raises:
        BadInput: there is none; the message lists the available ones.
    """
    if "/" in benchmark:
        if data is not None:
            raise BadInput(f"{benchmark}: is a dataset's location, so it cannot be combined with --data.")
        return benchmark
    root = Path(data or "data")
    # A folder that contains datasets is searched by name; a dataset folder is used as it is.
    inside = {path.name: path for path in sorted(root.iterdir()) if path.is_dir()} if root.is_dir() else {}
    if data is not None and (
        (root / MANIFEST).is_file() or not any((each / MANIFEST).is_file() for each in inside.values())
    ):
        return data
    try:
        name = resolve_name(benchmark, list(dict.fromkeys([*inside, *BENCHMARKS])), "benchmark")
    except BadInput as error:
        raise BadInput(f"{error} Or name a dataset folder or Hub repository with --data.") from None
    if name not in inside:
        raise BadInput(
            f"--data: no folder {root / name}. Build it (`medprobe build {name}`) "
            "or name a dataset folder or Hub repository with --data."
        )
    return str(inside[name])


def select_questions(
    benchmark: str,
    data: str | None,
    split: str | None,
    branches: Sequence[str] = (),
    limit: int | None = None,
    facets: Sequence[str] = (),
    revision: str | None = None,
) -> Selection:
    """Open the dataset and select the questions.

    Args:
        benchmark, data: see `dataset_folder`.
        split: name; None for the dataset's only split, else the benchmark's default.
        branches: lexical-tree branches, combined by `facets.select_by_branches`.
        limit: the first N questions, and the rest of their cases, as half a case cannot be scored.
        facets: FACET=VALUE; a union within a facet, an intersection across facets.
        revision: tag, branch or commit of a Hub repository.

    Raises:
        BadInput: an unknown dataset, split, branch or facet, an empty selection, or a dataset of
            another benchmark.
    """
    location = dataset_folder(benchmark, data)
    if revision and Path(location).is_dir():
        raise BadInput(
            f"--revision {revision}: {location} is a folder without revisions. Name a repository "
            "(ORG/NAME) with --data."
        )
    repository = open_repository(location, revision)
    if location != benchmark and fold_name(benchmark) not in map(fold_name, (repository.name, repository.family)):
        raise BadInput(
            f"{location} contains the benchmark {repository.name!r} ({repository.family}), not {benchmark!r}."
        )
    only_split = repository.splits[0] if len(repository.splits) == 1 else None
    split = split or only_split or DEFAULT_SPLITS[repository.family]
    if split not in repository.splits:
        raise BadInput(f"--split {split}: {location} has the splits {', '.join(repository.splits)}.")
    questions, left_out = narrow_questions(repository.questions_of_runs(split), branches, facets, limit)
    if questions.empty:
        raise BadInput(f"{location}: no question of split {split} is left to ask. Check --branch, --facet and --limit.")
    restrictions = [*([repository.partial] if repository.partial else []), *left_out]
    return Selection(repository, split, questions.reset_index(drop=True), "; ".join(restrictions) or None)


def narrow_questions(
    questions: pd.DataFrame, branches: Sequence[str] = (), facets: Sequence[str] = (), limit: int | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Restrict the questions of a split to branches, facets or the first few.

    Returns:
        The remaining questions, and one description per restriction.

    Raises:
        BadInput: an unknown branch or facet, or a limit below 1.
    """
    left_out: list[str] = []
    if branches:
        questions = questions[
            select_by_branches(questions, branches, [facet for facet, _ in parse_question_facets(questions, facets)])
        ]
        left_out.append(
            "only the branches " + " + ".join(branches) if len(branches) > 1 else f"only the branch {branches[0]}"
        )
    if facets:
        left_out.append("only the facets " + " + ".join(map("=".join, parse_question_facets(questions, facets))))
        questions = questions[select_by_facets(questions, facets)]
    if limit is not None:
        if limit < 1:
            raise BadInput(f"--limit {limit}: must be at least 1.")
        is_selected = questions["case_id"].isin(questions["case_id"].iloc[:limit])
        if not is_selected.all():
            # Completing the last case adds questions, which may come later than the first ones.
            n_selected = int(is_selected.sum())
            left_out.append(f"only the first {n_selected if is_selected.iloc[:n_selected].all() else limit} questions")
        questions = questions[is_selected]
    return questions, left_out


def describe_asked_part(
    ids: Collection[str], questions: pd.DataFrame, partial: str | None, request: RunRequest
) -> str | None:
    """Describe which part of a split was asked; None for all of it.

    Args:
        ids: ids of the questions that were asked.
        questions: all questions of the split.
        partial: description of what the dataset itself lacks.
        request: the run's request.
    """
    left_out: list[str] = []
    expected = questions
    # The dataset at hand may lack the run's branch or facet; then the number alone is given.
    with suppress(BadInput):
        expected, left_out = narrow_questions(questions, request.branches, request.facets, request.limit)
    # The options do not explain the selection if questions outside it were asked.
    if not set(ids) <= set(expected["question_id"]):
        expected, left_out = questions, []
    restrictions = [*([partial] if partial else []), *left_out]
    if len(ids) < len(expected):
        restrictions.append(f"only the {len(ids):,} of {len(expected):,} questions that were asked")
    return "; ".join(restrictions) or None
