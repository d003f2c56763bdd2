"""HALT-MedVQA: fake questions, removed correct options, swapped images (Wu et al., 2024)."""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec
from dataset_builders.schema import SCENARIOS, TEXT, ColumnType

SPEC = DatasetSpec(
    card=CardText(
        title="HALT-MedVQA",
        summary=(
            "Does a model admit that a question cannot be answered? Three scenarios: `fake` asks nonsense, `none` replaces "
            "the correct option by *none of the above*, `swap` shows an image that does not belong to the question."
        ),
        metrics=(
            "Accuracy per scenario (`fake`, `none`, `swap`), their mean `average`, and the number of answers that choose no "
            "option."
        ),
        limits=(
            "A model that always says *I do not know* scores 100 on `fake` and `swap`. The correct letters of `none` are not "
            "balanced: always answering C scores 37.0. The paper's n of 542 and 817 are the last indices of files with 543 "
            "and 818 questions; its accuracies fit the latter."
        ),
        licence=(
            "Questions: see knowlab/halt-medvqa. Images: VQA-RAD, PathVQA and PMC-VQA; the terms of each apply. The "
            "images of PathVQA and PMC-VQA come from books and articles with separate rights."
        ),
        citation=(
            "@misc{wu2024hallucination,\n  title={Hallucination Benchmark in Medical Visual Question Answering},\n"
            "  author={Wu, Jinge and Kim, Yunsoo and Wu, Honghan},\n  year={2024},\n  eprint={2401.05827},\n  "
            "archivePrefix={arXiv}\n}"
        ),
    ),
    get_images=(
        "HALT-MedVQA uses images of VQA-RAD (synpic*.jpg), PathVQA (test_*.jpg) and PMC-VQA (PMC*.jpg), which must be "
        "downloaded from those datasets. Give their folders with --images (may be repeated)."
    ),
    facets=("scenario", "source_dataset"),
    released={"test": "v1-af3743ec3004b461af84fb8ac70913e1e51f3b01464a31f6340c2d1bbcf23e95"},
    tasks={
        "fake": lambda question: question.extra.get("scenario") == "fake",
        "none": lambda question: question.extra.get("scenario") == "none",
        "swap": lambda question: question.extra.get("scenario") == "swap",
    },
    columns={
        "scenario": ColumnType("label", SCENARIOS).described("`fake`, `none` or `swap`"),
        "source_dataset": TEXT.described("dataset that the question was made from"),
    },
)
