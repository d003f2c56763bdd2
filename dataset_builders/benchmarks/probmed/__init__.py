"""ProbMed: yes/no probes with adversarial counterparts (Yan et al., 2024)."""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec
from dataset_builders.schema import ASPECTS, BOOL, TEXT, ColumnType

PAPER_IMAGES, PAPER_QUESTIONS = 6303, 57132
"""Section 3 of the paper."""

SPEC = DatasetSpec(
    card=CardText(
        title="ProbMed",
        summary=(
            "Does a model know what is *not* in the image? Yes/no questions on modality, organ, abnormality, "
            "condition and position, mostly in "
            "pairs: one about what is there, one *adversarial* about something invented. All questions on an image are a case."
        ),
        metrics=(
            "An image counts for an aspect if all its questions on that aspect are right, true and adversarial "
            "ones; `<aspect>_without_adversarial` "
            "requires only the true ones (for a normal image, which has no true question on condition, the adversarial one); "
            "`overall` is the mean over aspects and images. Condition, position and overall have the authors' weights, "
            "which also count images without such questions; `<name>_reweighted` divides by the images that have them."
        ),
        limits=(
            "Half of the images are chest X-rays. The paper's Table 2 lists 6,361 images in its rows and 6,303 in its "
            "total. Questions were made from captions and labels by a language model."
        ),
        licence=(
            "Questions: see the authors' repository. Images: MedICaT (licences per article) and ChestX-ray14 (NIH, free "
            "use with attribution)."
        ),
        citation=(
            "@misc{yan2024worse,\n"
            "  title={Worse than Random? An Embarrassingly Simple Probing Evaluation of Large Multimodal Models "
            "in Medical VQA},\n"
            "  author={Yan, Qianqi and He, Xuehai and Yue, Xiang and Wang, Xin Eric},\n  year={2024},\n  "
            "eprint={2405.20421},\n"
            "  archivePrefix={arXiv}\n}"
        ),
    ),
    get_images=(
        "ProbMed's images come with its dataset repository (rippleripple/ProbMed: MedICaT and ChestX-ray14). Download "
        "it and give its folder with --images."
    ),
    facets=("image_type", "organ", "modality"),
    columns={
        "aspect": ColumnType("label", ASPECTS).described(
            "step of the diagnosis: `modality`, `organ`, `abnormality`, `condition`, `position`"
        ),
        "adversarial": BOOL.described("true for the question about what the image does not show"),
        "organ": TEXT.described("organ that the image shows"),
        "image_type": TEXT.described("organ and modality, as the authors name them"),
        "pair_id": TEXT.described("shared by a question and its adversarial counterpart"),
        "qa_type": TEXT.described("the authors' name for the kind of question"),
    },
    paper_questions={"test": PAPER_QUESTIONS},
    paper_images=PAPER_IMAGES,
    # Only abnormality has a single question per image, so its score is plain accuracy; the other
    # aspects require several correct answers on one image.
    tasks={"abnormality": lambda question: question.extra.get("aspect") == "abnormality"},
)
