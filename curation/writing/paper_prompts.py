"""The prompts of MediConfusion's curation, as printed in its appendix A (ICLR 2025).

Placeholders, which the paper prints in bold, are written as **CAPITALS**. Line breaks due to the
width of the page are removed. In A.2, a closing quotation mark after "Other" that was never opened
is omitted.
"""

from __future__ import annotations

import re

SYSTEM_PROMPT = "You are a helpful assistant expert in the medical domain."

QUESTION_PROMPT = """Here is the description of two medical images that I can see:
Image1: **CAPTION OF IMAGE 1**
Image2: **CAPTION OF IMAGE 2**
Your task is to create multiple-choice questions. Follow the rules below.
1. The question should be about a property that is clearly visible in the images.
2. It should be possible to answer the question by only looking at the images.
3. Pretend that you can only see one image. You are not allowed to refer to 'Image1', 'Image2' or 'images'. You should also not create questions that require comparing the two images.
4. There should be exactly two answer options. You have to come up with a question for which the answer is different for the two images.
5. The answer options should be clearly different.
Please provide the question and the two answer options in the following format:
Question: <YOUR QUESTION>
Option1: <ANSWER 1>
Option2: <ANSWER 2>
Also, please provide the correct answers to the question for the images corresponding to our captions in the following format:
Image1: <ANSWER>
Image2: <ANSWER>
Aim for simple, efficient and concise questions to best test someone's knowledge and understanding of the underlying concepts."""  # noqa: E501
"""Appendix A.1: the prompt for a question about a confusing pair."""

DISCOVER_PROMPT = """I have several medical images related to radiology that each one has a corresponding caption. I have listed the captions below. Can you go through the captions and categorize them? Please focus on the general categories.
**CAPTIONS**"""  # noqa: E501
"""Appendix A.2, first prompt; **CAPTIONS** becomes lines `Caption 0: ...` to `Caption 99: ...`."""

CATEGORY_PROMPT = """Caption: **IMAGE CAPTION**
The above caption describes a radiology image. To which of the following categories does this image belong? You should only name the category, and you do not need to specify your reasoning.
Categories: **CATEGORIES**"""  # noqa: E501
"""Appendix A.2, second prompt; `PROMPT_CATEGORIES` is the paper's list of categories."""

PROMPT_CATEGORIES = (
    "Cerebral", "Spinal", "Cardiac", "Gastrointestinal", "Musculoskeletal", "Vascular", "Pulmonary", "Head and Neck", "Breast", "Other",
)  # fmt: skip
"""The categories of appendix A.2, in the order of the second prompt."""

PATTERNS_PROMPT = """I am analyzing an image embedding model. I have several image pairs that each one has a corresponding two choice question. I know that the embedding model confuses the images about the corresponding question. Can you go through the questions, options, and image descriptions, trying to figure out some general patterns that the embedding model struggles with? Please focus on the visual features and generalize patterns that are important to vision models.
**PAIRS**"""  # noqa: E501
"""Appendix A.3; **PAIRS** is replaced by one `PATTERN_PAIR` per pair."""

PATTERN_PAIR = """Pair **NUMBER**
First image description: **IMAGE 1 CAPTION**
Second image description: **IMAGE 2 CAPTION**
Confusing multiple choice question: **QUESTION**"""
"""Appendix A.3: the block for one pair."""

MAX_PROMPT_TEXTS = 100
"""Maximum number of captions (A.2) or pairs (A.3) in one prompt."""


def fill_template(template: str, **values: str) -> str:
    """Replace the placeholders of a template.

    All placeholders are replaced in one pass, so that text in a value that looks like a placeholder
    stays.

    Args:
        template: text with placeholders **NAME**.
        values: value of each placeholder; names are in lower case, with `_` for a space.

    >>> values = {"image_1_caption": "x", "image_2_caption": "y", "question": "z"}
    >>> fill_template(PATTERN_PAIR, number="0", **values).splitlines()[0]
    'Pair 0'
    """
    by_name = {name.upper().replace("_", " "): value for name, value in values.items()}
    return re.sub(r"\*\*([A-Z0-9 ]+)\*\*", lambda match: by_name[match.group(1)], template)


def join_lines(text: str) -> str:
    """Join the lines of a text, since its line breaks would look like those of the prompt."""
    return " ".join(text.split())
