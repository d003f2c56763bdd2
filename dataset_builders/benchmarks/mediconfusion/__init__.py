"""MediConfusion: confusing pairs of images (Sepehri et al., ICLR 2025)."""

from dataset_builders.benchmarks.spec import CardText, DatasetSpec
from dataset_builders.schema import NUMBER, TEXT, TEXTS

SPEC = DatasetSpec(
    card=CardText(
        title="MediConfusion",
        summary=(
            "Can a model distinguish two images that look the same to its encoder? Each case is a *confusing pair*: two "
            "radiology images that are similar for a medical encoder but not for a general one, with one question and "
            "two options. The correct option differs between the images, so a model that ignores the image gets at most "
            "one of them right."
        ),
        origin_note="The images are from ROCO.",
        metrics=(
            "`set_accuracy`: both images of the pair correct (guessing: 25%). `individual_accuracy`: each image "
            "separately (50%). `confusion`: pairs with the same answer for both images, among pairs with two valid answers. "
            "`invalid`: no option could be read."
        ),
        limits=(
            "With 176 pairs, differences between two models are detectable from about 8 to 12 points. Some images occur "
            "in many pairs, so pairs are not independent: intervals must cluster pairs that share images. Categories label images, "
            "not pairs."
        ),
        licence=(
            "Questions: MIT (the authors' repository). Images: figures of articles in PMC, each with its own "
            "licence, given per image if ROCO's licence lists contain it."
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
        "MediConfusion's images are not in its repository: users must download them from PMC (see image_dict.json). "
        "Give a folder with --images (files named by number, e.g. 20193.jpg, or as in ROCO, ROCO_35856.jpg), or "
        "a URL template with {pmcid} and {file_name}."
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
        "finetune": "a question; half of each category's pairs are for training, and no pair is divided (the paper's appendix D)",
        "finetune_disjoint": "a question; as `finetune`, but no image is in both halves",
    },
)
