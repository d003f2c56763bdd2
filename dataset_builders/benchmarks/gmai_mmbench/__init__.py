"""GMAI-MMBench: clinical tasks, departments, granularities and modalities in a lexical tree (Chen
et al., NeurIPS 2024).
"""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec

PAPER_SPLIT_SIZES = {"validation": 4550, "test": 21281}
"""Questions per split (section 3.2 of the paper, which states a total of 25,831).

The rows of Tables 5 and 6 add up to 25,898 and 25,403 instead.
"""

SPEC = DatasetSpec(
    card=CardText(
        title="GMAI-MMBench",
        summary=(
            "How well does a model cover the breadth of medicine? Single- and multiple-choice questions on clinical tasks, "
            "departments, perceptual granularities and modalities, organised in a lexical tree."
        ),
        metrics=(
            "Single choice: `accuracy` over questions (the papers' overall), `accuracy_macro_task` over tasks. "
            "Multiple choice: `mcq_accuracy` = correct options chosen / options chosen, "
            "`mcq_recall` = correct options chosen / correct options."
        ),
        limits=(
            "Rows with an answer are split `validation`, rows without one `test`. The paper's tables disagree on the "
            "number of questions (25,898, 25,403, 25,831). One department in the public tree has no name."
        ),
        licence=(
            "Questions and images: see OpenGVLab/GMAI-MMBench. The images come from many public data sets, each with its "
            "own terms."
        ),
        citation=(
            "@inproceedings{chen2024gmai,\n"
            "  title={GMAI-MMBench: A Comprehensive Multimodal Evaluation Benchmark Towards General Medical AI},\n"
            "  author={Chen, Pengcheng and Ye, Jin and Wang, Guoan and others},\n"
            "  booktitle={Advances in Neural Information Processing Systems},\n  year={2024}\n}"
        ),
    ),
    facets=("task", "department", "granularity", "modality"),
    default_split="validation",
    tasks={"accuracy": lambda question: question.question_type == "single"},
    paper_questions=PAPER_SPLIT_SIZES,
    custom_preset="mmbench-tsv",
)
