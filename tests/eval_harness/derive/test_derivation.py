"""`derive` is deterministic, and DERIVE_VERSION changes whenever its output does.

`python -m tests.eval_harness.derive.test_derivation` rewrites `recorded.json` after DERIVE_VERSION
was raised.
"""

import hashlib
import json
import random
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.derivation import compute_derivation_key, derive, derived_files
from eval_harness.derive.run_files import ANSWERS_SCHEMA, SubmittedFiles, answer_frame, encode_table, table_to_frame
from eval_harness.records.result import DELIVERIES, DERIVE_VERSION, Method, Model, RunRecord, RunRequest
from eval_harness.records.selection import Selection
from tests.eval_harness.store.honest import TEXTS_BY_STYLE

RECORDED = Path(__file__).with_name("recorded.json")


def selection(data: Path) -> Selection:
    repository = open_repository(data)
    split = repository.splits[0]
    return Selection(repository, split, repository.questions(split), None)


def made_run(chosen: Selection, samples: int = 1, permute: bool = False) -> RunRecord:
    benchmark = chosen.benchmark()
    request = RunRequest(
        benchmark=benchmark.name, data="", split=benchmark.split, fingerprint=benchmark.fingerprint or "", model="m",
        method="mc", prompt=None, samples=samples, generation={}, permute=permute,
    )  # fmt: skip
    return RunRecord(
        run_id="x", request=request, benchmark=benchmark, model=Model(name="M"), created_at="2026-11-01T00:00:00+00:00",
        method=Method(name="mc", samples=samples, extraction="ours"),
    )  # fmt: skip


def made_answers(questions: pd.DataFrame, seed: int, samples: int = 1) -> list[dict]:
    """Draw answers of every kind: letters, prose, refusals, errors, reasoning, empty and missing
    ones.
    """
    draw = random.Random(seed)
    rows = []
    for question in questions["question_id"]:
        for sample in range(samples):
            kind = draw.choice([*TEXTS_BY_STYLE, "gone"])
            if kind in ("gone", "very long"):
                continue
            rows.append(
                {
                    "question_id": question, "sample": sample, "response": TEXTS_BY_STYLE[kind](draw.randrange(100)),
                    "delivery": draw.choice([*DELIVERIES.values(), "answered", "answered", "answered"]),
                    "finish_reason": draw.choice([None, "stop", "length"]), "tokens_out": draw.choice([None, 3, 700]),
                }
            )  # fmt: skip
    return rows


def recorded(data: dict[str, Path]) -> dict[str, object]:
    """Return a digest per benchmark of everything derived from fixed answers, numbers to nine
    digits.
    """
    digests = {}
    for family in BENCHMARKS:
        chosen = selection(data[family])
        for permute in (False, True):
            run = made_run(chosen, 2, permute)
            derived = derive(run, answer_frame(made_answers(chosen.questions, 7, 2)), chosen.questions)
            readings = derived.readings[["question_id", "sample", "choice", "status", "rule"]].values.tolist()
            scores = derived.result.model_dump(mode="json", include={"scores", "breakdown", "statuses"})
            units = derived.units.round(9).to_csv(index=False)
            text = json.dumps([_rounded(scores), readings, units], sort_keys=True, default=str)
            digests[f"{family}{' permuted' if permute else ''}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"derive_version": DERIVE_VERSION, "digests": digests}


def _rounded(value):
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def data(phantoms):
    return {family: phantoms / family for family in BENCHMARKS}


def test_changed_output_requires_a_new_derive_version(data):
    stored = json.loads(RECORDED.read_text())
    current = recorded(data)
    assert stored == current or stored["derive_version"] < DERIVE_VERSION, (
        "derive gives other output for the same answers: raise DERIVE_VERSION, then run this file as a module"
    )
    assert stored == current, "DERIVE_VERSION was raised: run this file as a module"


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(1, 3),
    family=st.sampled_from(BENCHMARKS),
    permute=st.booleans(),
)
def test_answer_order_and_file_round_trip_do_not_change_the_files(data, seed, samples, family, permute):
    chosen = selection(data[family])
    run, rows = made_run(chosen, samples, permute), made_answers(chosen.questions, seed, samples)
    files = derived_files(derive(run, answer_frame(rows), chosen.questions))
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert derived_files(derive(run, answer_frame(shuffled), chosen.questions)) == files
    through = table_to_frame(encode_table(answer_frame(rows), ANSWERS_SCHEMA)).astype({"sample": "int64"})
    assert derived_files(derive(run, through, chosen.questions)) == files
    due = len(chosen.questions) * samples
    assert len(table_to_frame(files["readings.parquet"])) == due


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=3), min_size=8, max_size=8), st.integers(0, 4))
def test_derivation_key_depends_on_every_part(parts, which):
    def key(changed: list[bytes]) -> str:
        run, answers, judge, fingerprint, facets, *_ = changed
        return compute_derivation_key(SubmittedFiles(run, answers, judge), fingerprint.hex(), facets.hex())

    changed_parts = [*parts]
    changed_parts[which] += b"x"
    assert key(parts) == key([*parts]) != key(changed_parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folders = {
            family: Path(build(family, out=Path(temporary) / family, text_only=True).folder) for family in BENCHMARKS
        }
        RECORDED.write_text(json.dumps(recorded(folders), indent=1) + "\n")
        sys.stdout.write(RECORDED.read_text())
