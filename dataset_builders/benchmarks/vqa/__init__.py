"""Any set of visual questions with a key (yes/no, single or multiple choice), read from any table.

The labels of a set become its facets, under the source's own names.
"""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec

SPEC = DatasetSpec(
    card=CardText(
        title="Any VQA set",
        summary="Visual questions with a key: yes/no, single or multiple choice.",
        metrics=(
            "`accuracy`: questions answered right (of several right options, exactly these must be chosen). Guessing is "
            "1 / options, with several right options 1 / (2^options - 1). Questions on one image are one case: intervals "
            "do not treat them as independent. Open questions are not part of this dataset."
        ),
        limits="",
        licence="",
        citation="",
    ),
    facets=("task", "modality", "department", "granularity", "keyword", "category"),
    tasks={"accuracy": lambda question: question.question_type != "multiple"},
    any_source=True,
)
