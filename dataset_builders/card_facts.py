"""What is known of each benchmark, in our words, for its card: what it asks, how it is scored, its limits, licences, citation.

Not here: anything counted from the data (`card.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Words for the card of a format; Markdown."""

    title: str
    what: str
    metrics: str
    limits: str
    licence: str
    citation: str


FACTS: dict[str, Facts] = {
    "mediconfusion": Facts(
        title="MediConfusion",
        what=(
            "Can a model tell two images apart that look the same to its encoder? Each case is a *confusing "
            "pair*: two radiology images "
            "(from ROCO) that a medical encoder finds alike and a general one does not, one question, two "
            "options. The right option "
            "differs between the two images, so who answers without looking gets at most one of them right."
        ),
        metrics=(
            "`set_accuracy`: both images of the pair right (guessing: 25%). `individual_accuracy`: each image by "
            "itself (50%). `confusion`: "
            "pairs answered alike on both images, among pairs with two valid answers. `invalid`: no option could "
            "be read."
        ),
        limits=(
            "176 pairs tell two models apart from about 8 to 12 points on. Some images sit in many pairs, so "
            "pairs are not independent: "
            "intervals have to be taken over groups of pairs that share images. Categories are labels of images, "
            "not of pairs."
        ),
        licence=(
            "Questions: MIT (the authors' repository). Images: figures of articles in PMC, each with a licence "
            "of its own, given per image "
            "where ROCO's licence lists name it."
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
    "probmed": Facts(
        title="ProbMed",
        what=(
            "Does a model know what is *not* in the image? Yes/no questions on modality, organ, abnormality, "
            "condition and position, most in "
            "pairs: one on what is there, one *adversarial* on something made up. All questions on an image are a case."
        ),
        metrics=(
            "An image counts for an aspect when every question of that aspect is right, true and adversarial "
            "ones; `<aspect>_without_adversarial` "
            "asks for the true ones only; `overall` is the mean over aspects and images with the authors' weights."
        ),
        limits=(
            "Half of the images are chest X-rays. The paper's Table 2 lists 6,361 images in its rows and 6,303 "
            "in its total. Questions were "
            "made from captions and labels by a language model."
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
    "gmai-mmbench": Facts(
        title="GMAI-MMBench",
        what=(
            "How far does a model reach across medicine? Single and multiple choice over clinical tasks, "
            "departments, perceptual granularities "
            "and modalities, ordered in a lexical tree."
        ),
        metrics=(
            "Single choice: `accuracy` over questions (the papers' overall), `accuracy_macro_task` over tasks. "
            "Multiple choice: `mcq_accuracy` = "
            "right picks / picks made, `mcq_recall` = right picks / true options."
        ),
        limits=(
            "Rows with an answer are split `validation`, rows without one `test`. The paper's tables disagree on "
            "the number of questions "
            "(25,898, 25,403, 25,831). The public tree has one department without a name."
        ),
        licence="Questions and images: see OpenGVLab/GMAI-MMBench; the images come from many public data sets with terms of their own.",
        citation=(
            "@inproceedings{chen2024gmai,\n"
            "  title={GMAI-MMBench: A Comprehensive Multimodal Evaluation Benchmark Towards General Medical AI},\n"
            "  author={Chen, Pengcheng and Ye, Jin and Wang, Guoan and others},\n"
            "  booktitle={Advances in Neural Information Processing Systems},\n  year={2024}\n}"
        ),
    ),
    "halt-medvqa": Facts(
        title="HALT-MedVQA",
        what=(
            "Does a model say so when there is nothing to say? Three scenarios: `fake` asks nonsense, `none` has "
            "its right option replaced by "
            "*none of the above*, `swap` shows an image that does not belong to the question."
        ),
        metrics="Accuracy per scenario (`fake`, `none`, `swap`), their mean `average`, and how many answers name no option.",
        limits=(
            "A model that always says *I do not know* scores 100 on `fake` and `swap`. Right letters of `none` "
            "are not balanced: always C scores "
            "37.0. The paper's n of 542 and 817 are the last indices of files that hold 543 and 818 questions; "
            "its accuracies fit the latter."
        ),
        licence=(
            "Questions: see knowlab/halt-medvqa. Images: VQA-RAD, PathVQA and PMC-VQA; the terms of each apply, "
            "and those of PathVQA and PMC-VQA "
            "come from books and articles with rights of their own."
        ),
        citation=(
            "@misc{wu2024hallucination,\n  title={Hallucination Benchmark in Medical Visual Question Answering},\n"
            "  author={Wu, Jinge and Kim, Yunsoo and Wu, Honghan},\n  year={2024},\n  eprint={2401.05827},\n  "
            "archivePrefix={arXiv}\n}"
        ),
    ),
}
