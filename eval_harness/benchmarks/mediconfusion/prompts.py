"""MediConfusion's templates: the paper's Table 5 and the authors' prompt file, word for word."""

from __future__ import annotations

from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.prompt import COLON_LINES, Prompt, bare_question, lettered

_QUOTED_LINES = lettered('": ', "\n", opening='("', closing=")")

_BASED = "Based on the image, choose the correct option for the following question.\n"
_ASKED = "Question: {question}\n{options}\n"
_MC = _BASED + _ASKED
_DIRECTLY = "Answer with the option's letter directly.\nAnswer: "
_FROM_CHOICES = "Answer with the option's letter from the given choices directly."
_ONE_LETTER = _FROM_CHOICES + " Your answer should be just one letter.\n"
_GIVEN = (
    "You are given a radiology image, based on which you will need to carefully answer a medical question related to the image. "
    "You will be given two answer options: A and B from which you have to choose the right answer. The correct answer can always be "
    "determined just by looking at the radiology image itself. Take a close look at the image, think carefully, and answer the "
    "following question.\n"
)
_CRITICAL = (
    "You are given a radiology image, and your critical task is to take a close look and choose the correct option for the following "
    "question. It is extremely important to answer the following question correctly.\n"
)
_EXPERT = "You are an expert radiologist AI with deep knowledge in radiology image analysis. "
_VARIATIONS = {
    "mc-1": "Answer the following question about the image.\n" + _ASKED + _DIRECTLY,
    "mc-2": "Answer the following question about the image with the correct option's letter directly.\n"
    + _ASKED
    + "Answer: ",
    "mc-3": "Carefully and skillfully review the image and answer the following question.\n" + _ASKED + _DIRECTLY,
    "mc-4": _EXPERT + _BASED + _ASKED + _DIRECTLY,
    "mc-5": _MC + "Simply respond with 'A' or 'B' based on your answer.\nAnswer: ",
    "mc-6": "Based on the image, please choose the correct option for the following question.\n"
    + _ASKED
    + "Please answer with the option's letter from the given choices directly.\nAnswer: ",
    "mc-8": _GIVEN + _ASKED + _ONE_LETTER + "Answer: ",
    "mc-9": _ASKED + "Correct answer option: ",
    "mc-10": _CRITICAL + _ASKED + _ONE_LETTER + "Answer: ",
}
_FLAMINGO = (
    "You are a helpful medical assistant. You are being provided with images, a {} about each image and an answer. "
    "Follow the examples and answer the last question."
)
_FILE = "MediConfusion authors' prompt file "
_TABLE_5 = (
    "MediConfusion Table 5 (arXiv: Table 4); the paper prints no line breaks, they follow prompt 0 of the authors' file"
)

PROMPTS = (
    Prompt(
        "mc-0",
        "mediconfusion",
        _MC + _ONE_LETTER + "Answer: ",
        COLON_LINES,
        "MediConfusion Table 5, prompt 0; line breaks as the authors' prompt file (mc: gpt)",
        ("mc",),
    ),
    Prompt(
        "mc-quoted",
        "mediconfusion",
        _MC + _ONE_LETTER + '#answer: ("',
        _QUOTED_LINES,
        _FILE + "(mc: default)",
        ("mc",),
    ),
    *(
        Prompt(name, "mediconfusion", template, COLON_LINES, _TABLE_5, ("mc",))
        for name, template in _VARIATIONS.items()
    ),
    Prompt(
        "mc-7",
        "mediconfusion",
        "Based on the image, choose the correct option for the following question. Question: {question} {options} "
        + _ONE_LETTER[:-1]
        + " Answer: ",
        lambda options: " ".join(
            f"Option {letter}: {option}" for letter, option in zip(LETTERS, options, strict=False)
        ),
        _TABLE_5,
        ("mc",),
    ),
    Prompt(
        "mc-medvint",
        "mediconfusion",
        "Question: {question} The choices are: {options} The Answer is: ",
        lettered(": ", " "),
        _FILE + "(mc: medvint)",
        ("mc",),
    ),
    Prompt(
        "mc-blip2",
        "mediconfusion",
        "Question: Based on the image, choose the correct option for the following question. {question}\n{options}\n"
        + _FROM_CHOICES
        + " Answer:",
        COLON_LINES,
        _FILE + "(mc and greedy: blip2)",
    ),
    Prompt(
        "mc-flamingo",
        "mediconfusion",
        "Question: {question}\n{options}\nAnswer:",
        COLON_LINES,
        _FILE + "(mc and greedy: med_flamingo), appendix B.1",
        intro=_FLAMINGO.format("two choice question"),
        shot_answer="both",
    ),
    Prompt(
        "gd-default",
        "mediconfusion",
        _MC + _FROM_CHOICES + "\nAnswer: ",
        COLON_LINES,
        _FILE + "(greedy: default)",
        ("gd",),
    ),
    Prompt(
        "gd-quoted",
        "mediconfusion",
        _MC + _ONE_LETTER + '#answer: ("',
        _QUOTED_LINES,
        _FILE + "(greedy: molmo)",
        ("gd",),
    ),
    Prompt(
        "ps-plain",
        "mediconfusion",
        "Question: {question} Answer:",
        COLON_LINES,
        _FILE + "(prefix: default; gpt4: blip2; both: med_flamingo)",
        ("ps", "ps_official", "ff"),
        intro=_FLAMINGO.format("question"),
        shot_answer="text",
    ),
    Prompt(
        "ff-default",
        "mediconfusion",
        "Based on the image, answer following question.\n{question}",
        COLON_LINES,
        _FILE + "(gpt4: default)",
        ("ff",),
        shot_answer="text",
    ),
    bare_question("mediconfusion", "MediConfusion authors' prefix scoring of chat models: the question as it stands"),
)

DEFAULTS = {"mc": "mc-0", "gd": "gd-default", "ps": "question", "ps_official": "question", "ff": "ff-default"}
