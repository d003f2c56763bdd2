"""ProbMed's probing of VQA-RAD: questions answered yes, each followed by a counterpart answered no
(Yan et al., 2024, section 4.1.1).
"""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec
from dataset_builders.schema import BOOL, TEXT

PAPER_PAIRS = 118
"""Section 4.1.1: 118 of the 272 closed questions of VQA-RAD's test set have the answer yes."""

SPEC = DatasetSpec(
    card=CardText(
        title="ProbMed on VQA-RAD",
        summary=(
            "Does accuracy survive negation? Closed questions with the answer yes, each followed by a counterpart with the "
            "answer no. A pair is a case."
        ),
        origin_note="The questions are those of VQA-RAD's test set; the counterparts were written by hand.",
        metrics=(
            "`accuracy`: pairs with both questions right (guessing: 25%). `accuracy_without_adversarial`: pairs with the original "
            "question right (guessing: 50%). Always answering yes scores 0 on the first and 100 on the second."
        ),
        limits=(
            "With 118 pairs, differences between two models are detectable from about 13 points. The counterparts are "
            "easier than ProbMed's own questions."
        ),
        licence="Questions: see ProbMed's and VQA-RAD's authors. Images: VQA-RAD.",
        citation=(
            "@misc{yan2024worse,\n"
            "  title={Worse than Random? An Embarrassingly Simple Probing Evaluation of Large Multimodal Models "
            "in Medical VQA},\n"
            "  author={Yan, Qianqi and He, Xuehai and Yue, Xiang and Wang, Xin Eric},\n  year={2024},\n  "
            "eprint={2405.20421},\n"
            "  archivePrefix={arXiv}\n}"
        ),
    ),
    columns={
        "adversarial": BOOL.described("true for the question about what the image does not show"),
        "pair_id": TEXT.described("shared by a question and its adversarial counterpart"),
    },
    tasks={"accuracy_without_adversarial": lambda question: not question.extra.get("adversarial")},
    paper_questions={"test": 2 * PAPER_PAIRS},
    get_images="The images are VQA-RAD's (synpic*.jpg). Give their folder with --images.",
)
