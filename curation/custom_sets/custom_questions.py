"""Read a user's own multiple-choice questions, and decide which of them may be altered.

`hallucination.py` replaces the correct option by "None of the above", or the image by one for which
"I do not know" is correct. This must not make a remaining option correct. A question is therefore
left out if an option refers to other options, fits any image, or may mean the same as the correct
option.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from curation.images.image_table import cell_text, read_dataframe, require_columns, table_rows
from dataset_builders.contents.pseudonyms import normalize_group_name
from dataset_builders.errors import BadInput, Problems
from dataset_builders.label_reading import ParsedLabel, find_cues, parse_label, split_side
from dataset_builders.schema import LETTERS
from dataset_builders.source_files import is_safe_relative_path, strip_option_letters
from dataset_builders.terms import ancestors, find_terms, normalize_term, singular, terms_by_name

ParsedRow = TypeVar("ParsedRow")
QUESTION_REMEDY = (
    "A question has the columns image, question, answer (a letter, or the option's text) and its "
    "options: option_A, "
    "option_B ..., or in `options` a list, or an object with letters as keys."
)


@dataclass(frozen=True)
class CustomQuestion:
    """A multiple-choice question with one correct option.

    Attributes:
        answer: index of the correct option.
        kind: what the image shows (such as its organ), which decides which other images are
            unrelated.
        group: patient, study or article of the image; "" if unknown.
    """

    image: str
    question: str
    options: tuple[str, ...]
    answer: int
    kind: str = ""
    group: str = ""

    @property
    def correct_option(self) -> str:
        """Return the text of the correct option."""
        return self.options[self.answer]

    @property
    def wrong_options(self) -> list[str]:
        """Return the texts of the wrong options, in order."""
        return [option for index, option in enumerate(self.options) if index != self.answer]


@dataclass(frozen=True)
class FakeQuestion:
    """A question that has no answer, with its options."""

    question: str
    options: tuple[str, ...]


def read_custom_questions(path: Path, kind_column: str | None = None) -> list[CustomQuestion]:
    """Read the questions of a .csv, .tsv, .jsonl or .parquet file.

    Args:
        path: table with the columns image, question, answer and options; optionally group.
        kind_column: column that states what the image shows.

    Returns:
        One question per row.

    Raises:
        BadInput: rows are not valid questions (all are listed), a column is missing, or there are
            no rows.
    """
    required = ("image", "question", "answer", *([kind_column] if kind_column else []))

    def parse_row(row: dict[str, Any]) -> CustomQuestion | str:
        image, question, answer = (cell_text(row[name]) for name in required[:3])
        options = _row_options(row)
        problem = _question_problem(image, question, options)
        if problem or isinstance(options, str):
            return problem
        if (index := _answer_index(answer, options)) is None:
            return f"its answer {answer!r} is neither the letter nor the text of one option, or matches two"
        kind, group = (
            cell_text(row[kind_column]) if kind_column else "",
            normalize_group_name(cell_text(row.get("group"))),
        )
        return CustomQuestion(image, question, options, index, kind, group)

    return _read_rows(path, parse_row, required, QUESTION_REMEDY)


def read_fake_questions(path: Path) -> list[FakeQuestion]:
    """Read a user's own fake questions: question and options, no answer.

    Args:
        path: table as for `read_custom_questions`.

    Raises:
        BadInput: rows are not valid questions (all are listed), or there are no rows.
    """

    def parse_row(row: dict[str, Any]) -> FakeQuestion | str:
        question, options = cell_text(row.get("question")), _row_options(row)
        problem = _question_problem("-", question, options)
        return problem if problem or isinstance(options, str) else FakeQuestion(question, options)

    remedy = "A fake question has the column question and its options, as other questions have."
    return _read_rows(path, parse_row, ("question",), remedy)


def _read_rows(
    path: Path,
    parse_row: Callable[[dict[str, Any]], ParsedRow | str],
    required: Sequence[str],
    remedy: str,
) -> list[ParsedRow]:
    table = read_dataframe(path)
    require_columns(table, path, required, remedy)
    return parse_rows(table, path, parse_row, "questions", remedy)


def parse_rows(
    table: pd.DataFrame,
    path: Path,
    parse_row: Callable[[dict[str, Any]], ParsedRow | str],
    content: str,
    remedy: str,
) -> list[ParsedRow]:
    """Parse the rows of a table.

    Args:
        table: the table.
        path: its file, for errors.
        parse_row: returns the parsed row or, for an invalid row, a string that says what is wrong.
        content: what the rows are, for errors (in the plural).
        remedy: how to correct the table.

    Raises:
        BadInput: there are no rows, or rows are invalid; the message lists them.
    """
    problems = Problems()
    parsed_rows = []
    for number, row in enumerate(table_rows(table), 1):
        parsed = parse_row(row)
        if isinstance(parsed, str):
            problems.add(str(path), f"row {number}", parsed)
        else:
            parsed_rows.append(parsed)
    # Report all invalid rows together, so that the user can correct them in one go.
    problems.check(remedy)
    if not parsed_rows:
        raise BadInput(f"{path}: contains no {content}. {remedy}")
    return parsed_rows


def image_groups(questions: Iterable[CustomQuestion], path: Path) -> pd.DataFrame:
    """Collect the groups of the questions' images.

    Args:
        questions: questions read from `path`.
        path: file to name in errors.

    Returns:
        Columns image and group, one row per image.

    Raises:
        BadInput: the questions on one image name different groups.
    """
    groups: dict[str, str] = {}
    for question in questions:
        # A blank group means unknown: it never contradicts a group that another question names.
        groups[question.image] = groups.get(question.image, "") or question.group
        if question.group not in ("", groups[question.image]):
            raise BadInput(
                f"{path}: the questions on {question.image} have different groups. Give an image one group.",
            )
    return pd.DataFrame({"image": list(groups), "group": list(groups.values())})


def _row_options(row: dict[str, Any]) -> tuple[str, ...] | str:
    """Return the options of a row without leading letters, or a string that says what is wrong."""
    raw_options = row.get("options", row.get("choices"))
    if isinstance(raw_options, str) and raw_options.strip()[:1] in (
        "[",
        "{",
    ):  # JSON in a cell of a CSV
        try:
            raw_options = json.loads(raw_options)
        except ValueError:
            return "has `options` that are not valid JSON"
    if raw_options is None or isinstance(raw_options, (str, float)):
        raw_options = {
            name[-1]: row[name]
            for name in row
            if re.fullmatch(
                r"(?i:option|choice)(?:[ _][A-Za-z]|[A-Z])",
                name,
            )
        }
    if any(
        not pd.api.types.is_scalar(option)
        for option in (raw_options.values() if isinstance(raw_options, dict) else raw_options)
    ):
        return "has options that are not strings"
    if isinstance(raw_options, dict):
        texts = {str(letter).strip().upper(): text for letter, cell in raw_options.items() if (text := cell_text(cell))}
        if sorted(texts) != list(LETTERS[: len(texts)]):
            return f"has options {', '.join(sorted(texts))}, not consecutive letters from A"
        raw_options = [texts[letter] for letter in sorted(texts)]
    return strip_option_letters([cell_text(option) for option in raw_options])


def _question_problem(image: str, question: str, options: tuple[str, ...] | str) -> str:
    """Return what is wrong with a question; "" if it is valid."""
    return first_reason(
        (not image or not question, "has no image or no question"),
        (not is_safe_relative_path(image), f"the image name {image!r} leaves its folder"),
        (isinstance(options, str), str(options)),
        (not all(options), "has an option without a text"),
        # At most 25, because an added "I do not know" needs a letter, too.
        (not 2 <= len(options) <= 25, f"has {len(options)} options, not 2 to 25"),
        (len({option.casefold() for option in options}) < len(options), "has the same option twice"),
    )


def first_reason(*reasons: tuple[bool, str]) -> str:
    """Return the first reason that applies; "" if none does."""
    return next((reason for applies, reason in reasons if applies), "")


def _answer_index(answer: str, options: tuple[str, ...]) -> int | None:
    """Return the index of the option that an answer names by its letter, its text or both.

    Returns None if it names no option, or two.
    """
    match = re.fullmatch(r"\(?([A-Za-z])(?:[).:]\s*(.*))?", answer)
    letter_index = LETTERS.index(match[1].upper()) if match else len(options)
    by_text = {index for index, option in enumerate(options) if option.casefold() == answer.casefold()}
    # "B: liver" counts by its letter only if option B is "liver".
    by_letter = (
        {letter_index}
        if match
        and letter_index < len(options)
        and (match[2] or options[letter_index]).casefold() == options[letter_index].casefold()
        else set()
    )
    matches = by_text | by_letter
    return matches.pop() if len(matches) == 1 else None


# Whether options may be replaced or moved

REFERENCE_WORDS = (
    "above|below|both|all|either|neither|any|each|some|none|options?|choices?|answers?|these|those|them|listed|mentioned|following|preceding|"
    "previous|foregoing|aforementioned|others|everything|every|former|latter"
)
"""Words with which an option refers to other options, unless it also has content words: `Both A and
C` does, `both kidneys` does not.
"""
FILLER_WORDS = (
    "of|the|and|or|nor|but|not|plus|only|see|are|is|correct|true|right|wrong|false|one|two|three|four|first|second|third|"
    "fourth|[1-8](?:st|nd|rd|th)|last|other|"
    "statements?|together|at|once|as|well|combination|combined|more|than|same|apply|applies|present|seen|visible|shown|could|be|can|may|possible|"
    "here|it|that|this|no|see|to|through|with|along|except|also|findings?|conditions?|diagnos[ei]s|entit(?:y|ies)|structures?|features?|"
    "lesions?|abnormalit(?:y|ies)|regions?|signs?"
)
OPTION_LABEL = "[a-h1-8]|i{1,3}|iv|vi?"
OPTION_REFERENCE = re.compile(
    r"\b(?:all|any|none|both|either|neither|each|some|most|two|three|one|combination|which) of "
    r"(?:these|those|them|the (?:above|listed|following|foregoing|options|choices|others?))\b|"
    r"\b(?:the|all|both|as) (?:above|foregoing|preceding)\b|\b(?:above|other) "
    r"(?:options?|choices?|answers?)\b|"
    rf"\b(?:options?|choices?|answers?) (?:{OPTION_LABEL})\b|"
    rf"^(?:both |either |neither )?(?:{OPTION_LABEL}) (?:and|or|nor|plus) (?:{OPTION_LABEL})\b"
)
RANGE_WORDS = re.compile(
    r"[<>≤≥]|\d\s*\+|\b(?:more|less|greater|fewer|larger|smaller|longer|shorter|older|younger|over|under|above|below|least|most|up to|"
    r"within)\b"
)
SPELLED_NUMBER = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|half|single|i{1,3}|iv|vi{0,3})\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ABSTENTION = re.compile(
    r"\b(?:none of the above|all of the above|not know|dont know|unknown|can ?not be|cant be|cant "
    r"tell|cannot tell|cannot determine|"
    r"unable to|impossible|insufficient|not enough|not possible|no answer|no \w+ possible|not "
    r"sure|unsure|not applicable|"
    r"(?:not |un)(?:\w+ )?(?:listed|given|specified|mentioned|determined)|not in the "
    r"list|need(?:ed|s)|depends|unclear|uncertain|"
    r"indeterminate|inconclusive|equivocal|maybe|perhaps|elsewhere|something else|miscellaneous|n "
    r"a)\b|"
    r"^(?:none|nothing|neither|possibly|other\w*|(?:any |an |a |some(?:thing)? "
    r")?(?:other|another|different)(?: \w+)?)$"
)
"""Options (folded) that decline to answer, or that are compatible with every other option."""
GENERIC_TOPIC = re.compile(
    r"\b(?:modality|technique|sequence|planes?|views?|projection|orientation|kind of "
    r"(?:image|scan)|type of (?:image|scan|imaging)|"
    r"(?:which|what) (?:organ|body part|part of the "
    r"body|region|side)|contrast|axial|coronal|sagittal|ages?|old|sex|gender|male|female|"
    r"marker|annotation|missing|outside)\b",
    re.IGNORECASE,
)
"""Topics of questions that can be answered with any image, even a swapped one."""
OPTION_LATERALITY_WORDS = {"left", "right", "bilateral", "bilaterally", "both", "sides", "unilateral"}


@cache
def refers_to_options(option: str) -> bool:
    """Return True if an option refers to other options.

    Such an option would lose its meaning if one of them were replaced or moved. Examples: `Both A
    and C`, `All of the above`, `A & B`, `Only (ii)`, `Both`, `1 and 3 are correct`.
    """
    text = normalize_term(re.sub(r"[&+]", " and ", option))
    words = text.split()
    if OPTION_REFERENCE.search(text) or not words:
        return bool(words)
    if re.fullmatch(
        "[A-E]{2,5}",
        option.strip(),
    ) and sorted(set(option.strip())) == list(option.strip()):
        return True  # AB, ACD

    # One content word gives an option a meaning of its own: "both kidneys" is an answer.
    if not all(re.fullmatch(rf"{REFERENCE_WORDS}|{FILLER_WORDS}|{OPTION_LABEL}", word) for word in words):
        return False
    marks = sum(bool(re.fullmatch(OPTION_LABEL, word)) for word in words)
    # "None" or "Other" alone does not refer to options; `has_abstention` finds these.
    has_reference = any(
        re.fullmatch(
            rf"{REFERENCE_WORDS}|other|first|second|third|[1-8](?:st|nd|rd|th)|last|more",
            word,
        )
        for word in words
    )
    return (
        marks > 1
        or (marks > 0 and bool({"only", "except", "as", "not", "see"} & set(words)))
        or (has_reference and words not in (["none"], ["other"]))
    )


def has_abstention(options: Sequence[str]) -> bool:
    """Return True if an option declines to answer or covers the remaining cases.

    Examples: `I do not know`, `Cannot be determined`, `Other`, `Not listed`.
    """
    return any(ABSTENTION.search(normalize_term(option)) for option in options)


def fits_any_image(options: Sequence[str]) -> bool:
    """Return True if any option is correct for an unrelated image: no, normal, intact, grade 0."""
    return any(kind in ("negated", "normal") for option in options for kind, _ in find_cues(option))


def asks_for_absence(question: str) -> bool:
    """Return True if a question asks for what is absent or unaffected.

    If it does, any option is correct for an unrelated image.
    """
    return any(kind in ("negated", "normal") and not words.isdigit() for kind, words in find_cues(question))


def has_single_answer(question: CustomQuestion) -> bool:
    """Return True if no wrong option may mean the same as the correct one, or a part or kind of it.

    Only then is "None of the above" correct once the correct option is removed.
    """
    return not any(_may_coincide(question.correct_option, option) for option in question.wrong_options)


def labels_may_coincide(label_a: ParsedLabel, label_b: ParsedLabel) -> bool:
    """Return True if two labels may mean the same, or one may be a part or kind of the other.

    Args:
        label_a: a label.
        label_b: another label; labels of different sides never coincide.
    """
    if (
        label_a.side
        and label_b.side
        and label_a.side != label_b.side
        and "bilateral" not in (label_a.side, label_b.side)
    ):
        return False
    if label_a.term and label_b.term:
        lineage_a, lineage_b = (
            {
                term.concept,
                *ancestors("finding", term.concept),
            }
            for term in (label_a.term, label_b.term)
        )
        if label_a.term.concept in lineage_b or label_b.term.concept in lineage_a:
            return True
    words_a, words_b = (set(map(singular, normalize_term(label.text).split())) for label in (label_a, label_b))
    # The vocabulary may not know the labels. A label that contains all words of the other counts as
    # a kind of it.
    return words_a <= words_b or words_b <= words_a


def _may_coincide(correct: str, option: str) -> bool:
    """Return True if two options may mean the same, or one may be a part or kind of the other."""
    # Options with numbers are compared as numbers, not as words.
    numbers = [bool(NUMBER.search(option)) for option in (correct, option)]
    if all(numbers):
        return not _numbers_differ(correct, option)
    if any(numbers) and any(map(SPELLED_NUMBER.search, (correct, option))):
        return True  # "3" and "three"

    labels = [parse_label(option) for option in (correct, option)]
    correct_label, other_label = (
        ParsedLabel(_americanize(option), label.term, label.side)
        for option, label in zip((correct, option), labels, strict=True)
    )
    correct_words = set(normalize_term(correct).split())
    # Labels without terms are compared by their words, in case the vocabulary knows neither option.
    return (
        labels_may_coincide(correct_label, other_label)
        or labels_may_coincide(ParsedLabel(correct_label.text), ParsedLabel(other_label.text))
        or bool(
            correct_words & {"bilateral", "bilaterally", "both", "all", "diffuse"}
            and set(normalize_term(option).split()) & OPTION_LATERALITY_WORDS
        )
        or (
            _sides_overlap(correct, option)
            and bool(
                _whole_concepts(correct) & _mentioned_concepts(option)
                or _whole_concepts(option) & _mentioned_concepts(correct)
            )
        )
    )


def _numbers_differ(option_a: str, option_b: str) -> bool:
    """Return True if two options differ in exactly one number: `5 cm` and `7 cm`, T1 and T2.

    Different units, spelled-out numbers and ranges may mean the same, so they do not count as
    different.
    """
    # The shape of an option is its text without the numbers; equal shapes have the same unit.
    shapes = {" ".join(NUMBER.sub("#", text.casefold()).split()) for text in (option_a, option_b)}
    numbers = [
        [float(match.replace(",", "")) for match in NUMBER.findall(text) if match.count(".") < 2]
        for text in (option_a, option_b)
    ]
    is_plain = (
        len(shapes) == 1
        and all(len(option_numbers) == 1 for option_numbers in numbers)
        and not RANGE_WORDS.search(shapes.pop())
    )
    return is_plain and numbers[0] != numbers[1]


def _sides_overlap(option_a: str, option_b: str) -> bool:
    """Return True if two options may be on the same side; an option without a side is on either."""
    sides = [{"left", "right"} & set(normalize_term(text).split()) for text in (option_a, option_b)]
    return not all(sides) or bool(sides[0] & sides[1])


TERM_KINDS = ("region", "organ", "finding", "modality", "site", "technique")


def _whole_concepts(option: str) -> set[str]:
    """Return the concepts that the whole option names, apart from its side."""
    plain = normalize_term(option)
    sideless = " ".join(word for word in plain.split() if word not in ("left", "right", "the", "a", "an"))
    matches = [
        terms_by_name(kind).get(name)
        for kind in TERM_KINDS[:4]
        for name in (plain, sideless, singular(sideless), split_side(option)[0])
    ]
    return {term.concept for term in matches if term}


def _mentioned_concepts(option: str) -> set[str]:
    """Return the concepts of all terms in an option, with their ancestors.

    For "liver cyst", these include liver and abdomen.
    """
    concepts: set[str] = set()
    for term in find_terms(option, *TERM_KINDS):
        concepts |= {
            term.concept,
            *ancestors(term.kind, term.concept),
            *term.modalities,
            *term.regions,
        }
        concepts |= {ancestor for region in term.regions for ancestor in ancestors("region", region)}
        concepts |= {ancestor for modality in term.modalities for ancestor in ancestors("modality", modality)}
    return concepts


def _americanize(option: str) -> str:
    """Fold an option and convert it to American spelling: `oedema` -> edema."""
    american = re.sub(r"ae|oe", "e", normalize_term(option))
    return re.sub(r"our(?=\b|s\b)", "or", american)
