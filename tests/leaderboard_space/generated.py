"""Generate results stores, and compute what their raw files say without the board.

See also: the checks of the board's pages (`checks/pages.py`).
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.derive.metrics import HEADLINE_METRICS, compute_scores, compute_units, summarise_units
from eval_harness.derive.run_files import read_question_file, read_readings
from eval_harness.records.result import DERIVE_VERSION, Benchmark, Method, Model, Result, Score, Source, read_result
from leaderboard_space.data.sections import Section
from tests.leaderboard_space.stores import MADE_AT, add_run, answers, change, land, questions, withdraw

CASES = {
    "mediconfusion": "pair",
    "probmed": "image",
    "gmai-mmbench": "question",
    "halt-medvqa": "question",
    "probmed-vqa-rad": "pair",
}
# The facet whose cells are checked; a benchmark without facets has no cells.
FACET = {"mediconfusion": "category", "probmed": "organ", "gmai-mmbench": "department", "halt-medvqa": "scenario"}
Scores = dict[str, Score]


def make(store: Path, seed: int, most_models: int = 6) -> str:
    """Generate a store of one format: zero to many models; ties, all answering alike, all right;
    hidden keys; damaged files. Returns the format.

    Numbers that were only printed are given to the board separately (`printed`).
    """
    rng = np.random.default_rng(seed)
    family = BENCHMARKS[seed % len(BENCHMARKS)]
    (store / "results").mkdir(parents=True, exist_ok=True)
    cases = int(rng.choice([1, 2, 7, 45]))
    question_table = questions(family, cases, seed=seed)
    if rng.random() < 0.25:  # a key that the source does not publish: of some questions, or of all
        gone = set(
            question_table["case_id"].unique()[: int(len(question_table["case_id"].unique()) * rng.choice([0.3, 1.0]))]
        )
        hidden = question_table["case_id"].isin(gone)  # whole cases, because half a pair cannot be scored
        question_table["answer"] = [
            [] if gone else key for gone, key in zip(hidden, question_table["answer"], strict=True)
        ]
    keyed = questions(family, cases, seed=seed)
    models = int(rng.choice([0, 1, 2, 3, most_models]))
    alike = rng.random() < 0.25  # all give the same answers
    origin = str(rng.choice(["phantom", "official", "custom"]))
    name = family if origin != "custom" else "somebodys-own"
    selection = "--limit 7" if rng.random() < 0.15 else None
    settings_rng = np.random.default_rng([seed, 3])
    for at in range(models):
        skill, answer_seed = float(rng.choice([0.0, 0.3, 0.3, 0.7, 1.0])), 1 if alike else int(rng.integers(0, 10**6))
        answer_table = answers(keyed, 0.5 if alike else skill, seed=answer_seed)
        if (several := np.random.default_rng([seed, 4, at])).random() < 0.3:
            extra_samples = [
                answers(keyed, skill, seed=answer_seed + n).assign(sample=n) for n in range(1, several.integers(2, 4))
            ]
            answer_table = pd.concat([answer_table, *extra_samples], ignore_index=True)
        folder = add_run(
            store, family, question_table, answer_table, f"Model {at}",
            str(rng.choice(["open", "medical", "proprietary"])), name=name, origin=origin, selection=selection,
        )  # fmt: skip
        _said(folder, rng)
        if size := int(settings_rng.choice([0, 7, 34, 720])):
            change(folder, lambda result, size=size: result["model"].update(parameters=size * 10**8))  # type: ignore[misc]
        if rng.random() < 0.08:
            (folder / "units.parquet").write_bytes(b"PAR1 no")
    another = np.random.default_rng([seed, 2])
    # results of the same model by another account, better and worse, before and after
    if models and another.random() < 0.4:
        answer_table = answers(keyed, float(another.random()), seed=seed)
        folder = add_run(
            store,
            family,
            question_table,
            answer_table,
            "Model 0",
            "open",
            "second",
            name=name,
            origin=origin,
            selection=selection,
        )
        land(folder, "carol", f"2026-11-{int(another.integers(10, 30))}T12:00:00+00:00")
    for at in range(int(rng.choice([0, 0, 1, 2]))):
        add_run(store, family, question_table, answers(keyed, 0.0, seed=at), f"baseline: {at}", "baseline", name=name, origin=origin,
                selection=selection)  # fmt: skip
    return family


def _said(folder: Path, rng: np.random.Generator) -> None:
    """Write what a store records about some results, and what read them."""
    draw = rng.random(6)
    if draw[0] < 0.5:
        flags = ["the key's order"] if draw[1] < 0.3 else []
        land(
            folder,
            str(rng.choice(["alice", "bob", "=1+1", "名字"])),
            f"2026-11-{int(rng.integers(10, 30))}T00:00:00+00:00",
            flags,
        )
    if draw[2] < 0.12:
        withdraw(folder, "alice", "<b>wrong</b> prompt, 50% of it")
    if draw[4] < 0.15:
        change(folder, lambda result: result["method"].update(extraction="official"))
    if draw[5] < 0.15:
        change(folder, lambda result: result.update(derive_version=DERIVE_VERSION - 1))


def printed(family: str, seed: int) -> list[Result]:
    """Generate what a paper might print: rows with and without chance, with cells of some
    categories, with and without counts.
    """
    rng = np.random.default_rng(seed + 1)
    metric = HEADLINE_METRICS[family]
    facets = [FACET[family]] if family in FACET else []

    def cell() -> dict[str, Score]:
        n = int(rng.choice([0, 20, 176]))
        value = round(float(rng.choice([0.0, 29.55, 100.0, rng.uniform(0, 100)])), 2)
        verdict = None if rng.random() < 0.5 else str(rng.choice(["better", "no different", "worse"]))
        chance = 25.0 if verdict or rng.random() < 0.3 else None
        counted = {"fake_irrelevant": Score(value=float(n // 3), n=n, n_cases=n)} if family == "halt-medvqa" else {}
        return {metric: Score(value=value, n=n, n_cases=n, chance=chance, verdict=verdict)} | counted  # type: ignore[arg-type]

    return [
        Result(
            kind="printed", provenance="published",
            benchmark=Benchmark(name=family, format=family, split="test", questions=176),
            model=Model(name=f"Printed {at}", kind="proprietary"),
            method=Method(name="best"), scores=cell() if rng.random() < 0.9 else {}, created_at=MADE_AT,
            breakdown={facet: {label: cell() for label in ("one", "two") if rng.random() < 0.8} for facet in facets},
            source=Source(citation="A paper", table="Table 1"),
        )
        for at in range(int(rng.choice([0, 0, 1, 4])))
    ]  # fmt: skip


@dataclass(frozen=True)
class Raw:
    """A result as its files describe it: overall scores, and scores per facet value. `units` None:
    its answers cannot be read.
    """

    result: Result
    scores: Scores
    cells: dict[str, dict[str, Scores]]
    units: pd.DataFrame | None
    account: str | None = None
    withdrawn: bool = False
    landed_at: str | None = None


def raw(store: Path, section: Section) -> dict[str, Raw]:
    """Compute entry key -> truth from the files with the harness's own scorer, which shares no code
    with the board's.
    """
    truths = {}
    for entry in section.entries:
        result = entry.result
        if entry.folder is None:
            truths[entry.key] = Raw(result, result.scores, result.breakdown, None)
            continue
        result = read_result(entry.folder / "result.json")
        landing = entry.folder / "acceptance.json"
        acceptance = json.loads(landing.read_text(encoding="utf-8")) if landing.is_file() else {}
        provenance = (
            acceptance.get("account"),
            (entry.folder / "withdrawn.json").is_file(),
            acceptance.get("accepted_at"),
        )
        readings = read_readings(entry.folder, ("response",))
        try:
            # the board reads these, and states which it cannot read
            pd.read_parquet(entry.folder / "units.parquet")
        except Exception:
            truths[entry.key] = Raw(result, result.scores, result.breakdown, None, *provenance)
            continue
        question_table = read_question_file(store / "questions" / f"{section.fingerprint}.parquet")
        scored = compute_scores(section.family, question_table, readings, result.method.extraction or "ours")
        cells = scored.breakdown
        # MediConfusion's categories count image labels; elsewhere a cell is its questions, scored
        # alone.
        if section.family != "mediconfusion" and section.family in FACET:
            facets = [FACET[section.family], *(["image_type"] if section.family == "probmed" else [])]
            cells = cells | {facet: _alone(section.family, facet, question_table, readings, result) for facet in facets}
        truths[entry.key] = Raw(
            result, scored.scores, cells, compute_units(section.family, question_table, readings), *provenance
        )
    return truths


def _alone(
    family: str, facet: str, question_table: pd.DataFrame, readings: pd.DataFrame, result: Result
) -> dict[str, Scores]:
    scores, official = {}, result.method.extraction == "official"
    for label, part in question_table.groupby(facet):
        part_readings = readings[readings["question_id"].isin(part["question_id"])]
        scores[str(label)] = summarise_units(
            compute_units(family, part.reset_index(drop=True), part_readings), official
        )
    return scores


APART = {
    "withdrawn": "withdrawn",
    "outdated": "derived by another version",
    "official": "read by the authors' own reader",
    "silent": "not ranked: most of the answers",
}


def apart(truth: dict[str, Raw]) -> dict[str, str]:
    """Return the results that are not ranked with the others -> the reason."""
    why = {
        key: "official" for key, truth_of_run in truth.items() if truth_of_run.result.method.extraction == "official"
    }
    measured = {
        key: truth_of_run.result for key, truth_of_run in truth.items() if truth_of_run.result.kind == "measured"
    }
    why |= {key: "outdated" for key, result in measured.items() if result.derive_version != DERIVE_VERSION}
    return why | {key: "withdrawn" for key, truth_of_run in truth.items() if truth_of_run.withdrawn}
