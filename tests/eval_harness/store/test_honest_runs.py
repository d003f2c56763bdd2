"""Every honest run is stored byte for byte: what `eval` accepts, `submit` and `verify` accept
unaltered.
"""

import pytest
from huggingface_hub import HfApi

from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import accept, verify
from tests.eval_harness.store.honest import FORMATS, MODEL_NAMES, Case, cases, differences, run
from tests.eval_harness.store.submitting import edit_answers, pull_head
from tests.localhub.accounts import CURATOR
from tests.sampling import few

COUNT = 7


@pytest.fixture(scope="module")
def data(phantoms):
    return {family: phantoms / family for family in FORMATS}


@pytest.mark.parametrize(
    "case",
    few(cases(12, COUNT)),
    ids=lambda case: f"{case.family}-{case.method}-{case.back_end}-{case.number}",
)
def test_honest_runs_land_in_a_folder_and_are_verified(case, data, tmp_path):
    dataset = data[case.family]
    folder = run(case, dataset, tmp_path / "made")
    done = submit_to_store(folder, tmp_path / "store", data=str(dataset))
    assert done.submission.problems == [] and differences(folder, tmp_path / done.location) == []
    (outcome,) = verify(str(tmp_path / "store"), data=[str(dataset)])
    assert outcome.status in ("verified", "for a person"), outcome
    # A folder of a store is a submission as well, which another store adds byte for byte.
    again = submit_to_store(tmp_path / done.location, tmp_path / "another", data=str(dataset))
    assert again.new and again.submission.problems == []
    for path, content in (done.submission.files() | done.submission.derived_files()).items():
        assert (tmp_path / "another" / path).read_bytes() == content


@pytest.mark.parametrize("case", few(cases(13, 3)), ids=str)
def test_honest_runs_land_on_the_hub(case, data, owner, monkeypatch, tmp_path):
    dataset = data[case.family]
    folder = run(case, dataset, tmp_path / "made")
    done = submit_to_store(folder, "ORG/results", data=str(dataset))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    outcome = accept("ORG/results@1", pull_head(owner, 1), data=[str(dataset)])
    assert outcome.status == "added", outcome
    api = HfApi(endpoint=owner.endpoint, token=CURATOR)
    for path, content in done.submission.files().items():
        target = tmp_path / "landed" / path
        api.hf_hub_download("ORG/results", path, repo_type="dataset", local_dir=tmp_path / "landed")
        assert target.read_bytes() == content
    for path in done.submission.derived_files():
        api.hf_hub_download("ORG/results", path, repo_type="dataset", local_dir=tmp_path / "landed")
    assert differences(folder, target.parent) == []


@pytest.mark.parametrize(
    ("name", "samples", "permute"),
    few([("chance", 3, False), ("oracle", None, True), ("always-C", None, False)]),
)
def test_baselines_are_reproduced_unless_an_answer_is_changed(data, tmp_path, name, samples, permute):
    dataset, folder = str(data["mediconfusion"]), tmp_path / "run"
    run_evaluation(
        EvalConfig(
            "mediconfusion",
            f"baseline:{name}",
            dataset,
            out=folder,
            samples=samples,
            permute=permute,
        )
    )
    assert build_submission(folder).problems == []
    edit_answers(folder, lambda rows: rows[-1].update(response=rows[-1]["response"] + "!"))
    assert any("1 of" in line and "are not those of" in line for line in build_submission(folder).problems)


def test_results_never_replace_each_other(data, tmp_path):
    """The same model with other answers, names with the same slug, both readers: all are stored."""
    dataset, landed = data["mediconfusion"], []
    runs = [
        (1, MODEL_NAMES[9], "ours"),
        (2, MODEL_NAMES[9], "ours"),
        (1, MODEL_NAMES[9], "official"),
        (1, MODEL_NAMES[10], "ours"),
    ]
    for number, name, extraction in runs:
        case = Case(
            number,
            "mediconfusion",
            "mc",
            "plug-in",
            ("letters", "prose"),
            name,
            limit=8,
            extraction=extraction,
        )
        folder = run(case, dataset, tmp_path / f"{number}-{len(landed)}")
        landed.append(submit_to_store(folder, tmp_path / "store", data=str(dataset)))
    assert all(done.new for done in landed) and len({done.location for done in landed}) == 4
