"""Compare GMAI-MMBench's official reader with VLMEvalKit's verdicts (`hit`) on recorded answers of
five models.
"""

from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.gmai_mmbench import read_official


@pytest.mark.sources
def test_every_recorded_verdict_is_reproduced(sources: Path) -> None:
    files = sorted(sources.glob("later_answers/gmai_vlmevalkit/*/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    answers = differences = 0
    for file in files:
        table = pd.read_excel(file, keep_default_na=False, dtype=str)
        options = [[text for text in texts if text] for texts in table[list("ABCDE")].to_numpy().tolist()]
        readings = [
            read_official(response, texts, "single").choice
            for response, texts in zip(table["prediction"], options, strict=True)
        ]
        hits = ["".join(LETTERS[at] for at in choice) for choice in readings] == table["answer"]
        answers += len(table)
        differences += int((hits != (table["hit"].astype(float) == 1)).sum())
    assert (answers, differences) == (22_750, 0)
