# ruff: noqa: E501
"""Make results stores with invented questions and answers (no real model, no real benchmark),
written as `submit` does.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.schema import ASPECTS
from eval_harness.derive.derivation import Derived, select_board_units, write_derived
from eval_harness.derive.metrics import compute_scores
from eval_harness.derive.run_files import ANSWER_TABLE_COLUMNS, ANSWERS_SCHEMA, encode_table
from eval_harness.records.limits import model_slug
from eval_harness.records.result import Benchmark, Method, Model, Result
from eval_harness.store.contents import ACCEPTANCE, WITHDRAWN, Acceptance, Withdrawal
from tests.helpers import edit_json
from tests.processes import made_once

MADE_AT = "2026-11-21T07:00:00+00:00"
COMMON: dict[str, Any] = {
    "question_type": "single", "task": None, "modality": None, "department": None, "granularity": None, "keyword": None,
    "categories": (), "image_license": "unknown", "image_source": None,
}  # fmt: skip


def questions(family: str, cases: int = 40, seed: int = 1) -> pd.DataFrame:
    """Make questions of a format on `cases` cases, with values for every facet."""
    rng = np.random.default_rng(seed)
    maker: Callable[[int, np.random.Generator], list[dict[str, Any]]] = _MAKERS[family]
    return pd.DataFrame([{**COMMON, **row, "categories": list(row.get("categories", ()))} for row in maker(cases, rng)])


def _mediconfusion(cases: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    names = ["Cerebral", "Spinal", "Cardiac", "Nuclear Medicine"]
    rows = []
    for pair in range(cases):
        for side in (1, 2):
            labels = [names[int(rng.integers(0, 4))]] + ([names[pair % 4]] if pair % 5 == 0 else [])
            rows.append(
                {"question_id": f"{pair}-{side}", "case_id": str(pair), "image_id": f"image-{pair * 2 + side - (pair % 7 == 0)}",
                 "question": f"Test pair {pair}: what is seen?", "options": ["left", "right"], "answer": [side - 1],
                 "categories": list(dict.fromkeys(labels))}
            )  # fmt: skip
    return rows


def _probmed(cases: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    kinds = [("chest", "X-ray"), ("chest", "CT"), ("brain", "MRI"), ("abdomen", "CT")]
    rows = []
    for image in range(cases):
        organ, modality = kinds[image % 4]
        for aspect in ASPECTS:
            for adversarial in (False, True) if aspect != "abnormality" else (False,):
                rows.append(
                    {"question_id": f"{image}-{aspect}-{adversarial}", "case_id": str(image), "image_id": str(image),
                     "question": f"Test image {image}: {aspect}?", "options": ["yes", "no"], "answer": [int(adversarial)],
                     "question_type": "yes_no", "aspect": aspect, "adversarial": adversarial, "organ": organ, "modality": modality,
                     "image_type": f"{organ} {modality}", "pair_id": f"{image}-{aspect}", "qa_type": f"{aspect}-{adversarial}"}
                )  # fmt: skip
    return rows


def _gmai(cases: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    departments, modalities = (
        ["Ophthalmology", "Neurosurgery", "Pulmonary Medicine"],
        ["Fundus Photography", "MRI", "CT"],
    )
    return [
        {"question_id": str(i), "case_id": str(i), "image_id": str(i), "question": f"Test question {i}?",
         "options": ["a", "b", "c", "d"][: 3 + i % 2], "answer": [int(rng.integers(0, 3))], "task": ["Disease Diagnosis", "Counting"][i % 2],
         "department": departments[i % 3], "granularity": ["image", "box"][i % 2], "modality": modalities[int(rng.integers(0, 3))],
         "keyword": f"finding {int(rng.integers(0, 6))}"}
        for i in range(cases)
    ]  # fmt: skip


def _halt(cases: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    scenarios = ["fake", "none", "swap"]
    return [
        {"question_id": f"{scenarios[i % 3]}-{i}", "case_id": str(i), "image_id": str(i), "question": f"Test question {i}?",
         "options": ["a", "b", "c", "none of these", "I do not know"], "answer": [int(rng.integers(0, 5))], "scenario": scenarios[i % 3],
         "source_dataset": ["source one", "source two"][int(rng.integers(0, 2))]}
        for i in range(cases)
    ]  # fmt: skip


def _pairs(cases: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {"question_id": f"{pair}-{adversarial}", "case_id": str(pair), "image_id": str(pair // 2), "question": f"Test pair {pair}?",
         "options": ["yes", "no"], "answer": [int(adversarial)], "question_type": "yes_no", "adversarial": adversarial, "pair_id": str(pair)}
        for pair in range(cases)
        for adversarial in (False, True)
    ]  # fmt: skip


_MAKERS = {
    "mediconfusion": _mediconfusion,
    "probmed": _probmed,
    "gmai-mmbench": _gmai,
    "halt-medvqa": _halt,
    "probmed-vqa-rad": _pairs,
}


def answers(questions: pd.DataFrame, skill: float, seed: int = 2) -> pd.DataFrame:
    """Make the answers of a responder that knows a share `skill` of the questions, and guesses,
    refuses or rambles for the rest.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for question_id, options, key in zip(
        questions["question_id"], questions["options"], questions["answer"], strict=True
    ):
        draw = rng.random()
        knows = rng.random() < skill
        choice = list(key) if knows else [int(rng.integers(0, len(options)))]
        status = "answered"
        if not knows and draw < 0.06:
            choice, status = [], "refused" if draw < 0.02 else "irrelevant"
        rows.append(
            {"question_id": question_id, "sample": 0, "response": options[choice[0]] if choice else "", "choice": choice,
             "status": status, "rule": "test", "scores": None, "seconds": 0.1}
        )  # fmt: skip
    return pd.DataFrame(rows)


def add_run(
    store: Path,
    family: str,
    questions: pd.DataFrame,
    answers: pd.DataFrame,
    model: str,
    kind: str | None = "open",
    run: str = "run",
    extraction: str = "ours",
    **changes: Any,
) -> Path:
    """Write a result with its answers and questions into the store; return its folder.

    `changes` are fields of the Benchmark; `run` distinguishes results of one model.
    """
    mark = fingerprint_questions(questions)
    scored = compute_scores(family, questions, answers, extraction)
    benchmark: dict[str, Any] = {
        "name": family, "format": family, "split": "validation" if family == "gmai-mmbench" else "test",
        "questions": len(questions), "fingerprint": mark, "origin": "phantom",
    } | changes  # fmt: skip
    result = Result(
        kind="measured", provenance="submitted", benchmark=Benchmark(**benchmark), model=Model(name=model, kind=kind),  # type: ignore[arg-type]
        method=Method(name="mc", prompt="test", samples=1, extraction=extraction), scores=scored.scores, breakdown=scored.breakdown,
        statuses=scored.statuses, command="made by a test", created_at=MADE_AT,
    )  # fmt: skip
    folder = store / "results" / benchmark["name"] / model_slug(model) / f"{run}-{mark[:6]}"
    folder.mkdir(parents=True, exist_ok=True)
    rows = answers.assign(delivery="answered").reindex(columns=[*ANSWER_TABLE_COLUMNS, "choice", "status", "rule"])
    (folder / "answers.parquet").write_bytes(encode_table(rows, ANSWERS_SCHEMA))
    write_derived(folder, Derived(result, rows, select_board_units(scored.units)))
    land(folder, "owner")
    questions_path = store / "questions" / f"{mark}.parquet"
    questions_path.parent.mkdir(parents=True, exist_ok=True)
    questions.to_parquet(questions_path, index=False)
    return folder


def land(folder: Path, account: str, landed_at: str = MADE_AT, flags: list[str] | None = None) -> None:
    """Record how a result entered the store."""
    record = Acceptance(account=account, accepted_at=landed_at, verified_by="owner", flags=flags or [])
    (folder / ACCEPTANCE).write_bytes(record.to_bytes())


def withdraw(folder: Path, account: str, reason: str) -> None:
    """Withdraw a result."""
    (folder / WITHDRAWN).write_bytes(Withdrawal(account=account, withdrawn_at=MADE_AT, reason=reason).to_bytes())


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the document of a result."""
    edit_json(folder / "result.json", edit)


STORE_MODELS = [
    ("Test Open 7B", "open", 0.35), ("Test Open 72B", "open", 0.6), ("Test Medical 8B", "medical", 0.3), ("Test Proprietary", "proprietary", 0.65),
    ("Test Small", "open", 0.05), ("baseline: chance", "baseline", 0.0), ("baseline: oracle", "baseline", 1.0),
]  # fmt: skip


def make_store(store: Path) -> Path:
    """Return a store with seven invented responders on each format: a copy of one that is made once
    per test run.
    """
    shutil.copytree(made_once("store", _fill), store, dirs_exist_ok=True)
    return store


def _fill(store: Path) -> None:
    for number, family in enumerate(BENCHMARKS):
        question_table = questions(family, 30, seed=number)
        for at, (name, kind, skill) in enumerate(STORE_MODELS):
            add_run(store, family, question_table, answers(question_table, skill, seed=10 * number + at), name, kind)
