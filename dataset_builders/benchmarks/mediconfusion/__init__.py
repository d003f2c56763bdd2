"""MediConfusion: confusing pairs of images (Sepehri et al., ICLR 2025)."""

from __future__ import annotations

from dataset_builders.benchmarks.spec import CardText, DatasetSpec
from dataset_builders.schema import NUMBER, TEXT, TEXTS

SPEC = DatasetSpec(
    card=CardText(
        title="MediConfusion",
        summary=(
            "Can a model tell two images apart that look the same to its encoder? Each case is a *confusing pair*: two "
            "radiology images that a medical encoder finds alike and a general one does not, one question, "
            "two options. The correct option differs between the two images, so a model that ignores the image gets at most "
            "one of them right."
        ),
        origin_note="The images are from ROCO.",
        metrics=(
            "`set_accuracy`: both images of the pair correct (guessing: 25%). `individual_accuracy`: each image on "
            "its own (50%). `confusion`: pairs with the same answer on both images, among pairs with two valid answers. "
            "`invalid`: no option could be read."
        ),
        limits=(
            "With 176 pairs, differences between two models are detectable from about 8 to 12 points. Some images occur "
            "in many pairs, so pairs are not independent: intervals have to cluster pairs that share images. Categories are labels "
            "of images, not of pairs."
        ),
        licence=(
            "Questions: MIT (the authors' repository). Images: figures of articles in PMC, each with a licence of its "
            "own, given per image where ROCO's licence lists name it."
        ),
        citation=(
            "@inproceedings{sepehri2025mediconfusion,\n"
            "  title={MediConfusion: Can you trust your AI radiologist? Probing the reliability of multimodal "
            "medical foundation models},\n"
            "  author={Sepehri, Mohammad Shahab and Fabian, Zalan and Soltanolkotabi, Maryam and Soltanolkotabi, "
            "Mahdi},\n"
            "  booktitle={International Conference on Learning Representations},\n  year={2025}\n}"
        ),
    ),
    get_images=(
        "MediConfusion's images are not in its repository: each user downloads them from PMC (image_dict.json says "
        "where). Give a folder with --images (files named by number, e.g. 20193.jpg, or as in ROCO, ROCO_35856.jpg) or "
        "an address with {pmcid} and {file_name} in it."
    ),
    facets=("category",),
    columns={
        "sim_med": NUMBER.described("similarity of the pair's images to a medical encoder (BiomedCLIP)"),
        "sim_gen": NUMBER.described("similarity of the pair's images to a general encoder (DINOv2)"),
        "caption": TEXT.described("caption of the image"),
        "ai_question": TEXT.described("the question as a language model drafted it"),
        "ai_options": TEXTS.described("the options as a language model drafted them"),
    },
    not_in_results=("caption", "ai_question", "ai_options"),
    released={"test": "v1-f21b47b1a50f2e268e8c3c61d74030e726fbd22bd435e724968728700f7fef6a"},
    tasks={"individual_accuracy": lambda question: True},
    configs={
        "finetune": "a question; half of the pairs of each category to train on, no pair split (the paper's appendix D)",
        "finetune_disjoint": "a question; the same, and no image is in both halves",
    },
)
