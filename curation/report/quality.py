"""Quality report of a benchmark before it is published: its numbers and its page.

It scores simple rules that answer without the images, by the benchmark's own metrics, and finds
repeated questions and images. For MediConfusion's pairs, it also measures the balance of the
correct options and the smallest difference between two models that the pairs can detect.

Both pages are self-contained HTML with inline plots: this report, and histograms of the pairs'
cosines (`write_histograms`), as in MediConfusion's figure 8 (appendix F).
"""

# ruff: noqa: E501
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from curation.report.blind_baseline import BlindModel
from dataset_builders.case_groups import find_split_overlaps, format_overlaps
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.images.picture import make_picture
from eval_harness.derive.metrics import OVERALL_METRICS, compute_scores
from eval_harness.scores.grading import image_clusters, question_image_ids
from eval_harness.scores.intervals import ClusterSizes

PAIRS_FAMILY = "mediconfusion"
DISCORDANT_SHARES = (0.15, 0.3)
"""Typical shares of the pairs that exactly one of two models gets right, for which the smallest
detectable difference is computed.
"""


@dataclass(frozen=True)
class PairQuality:
    """Measures of MediConfusion's pairs."""

    pairs: int
    components: int
    """Number of clusters of pairs that share images or patients."""
    largest_component: int
    effective_pairs: float
    """Effective number of independent pairs (Kish), if all pairs of a cluster are answered
    alike.
    """
    image_1_is_a: int
    position_p: float
    smallest_difference: dict[str, float | None]
    sim_med: list[float]
    sim_gen: list[float]


@dataclass(frozen=True)
class QualityReport:
    """The numbers of the report.

    Attributes:
        rules: rule that answers without images -> metric -> value, low, high (95%), chance,
            verdict.
        perfect: the same fields for the headline metric of a model that answers everything
            correctly.
    """

    name: str
    family: str
    split: str
    questions: int
    images: int
    images_seen: int
    rules: dict[str, dict[str, dict[str, Any]]]
    perfect: dict[str, Any]
    repeated_questions: list[list[str]]
    """Groups of questions about one image with the same text and options."""
    same_images: list[list[str]]
    """Groups of images of this split with the same pixels."""
    images_in_splits: dict[str, list[str]]
    """Image -> splits that contain its pixels, for images in more than one split."""
    of_pairs: PairQuality | None = None
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """Return a sentence for each conspicuous result."""
        metric = blind_metrics(self.family)[-1]
        blind_scores = {rule: scores[metric] for rule, scores in self.rules.items()}
        blind = self.blind_model
        blind_scores |= {blind.model: blind.scores[metric]} if blind else {}
        warnings = [
            f"{answerer} gets {numbers['value']:.1f} % ({metric.replace('_', ' ')}) without the "
            "images (95%: "
            f"{numbers['low']:.1f} to {numbers['high']:.1f}; chance {numbers['chance']:.1f}): the "
            "text gives answers away."
            for answerer, numbers in blind_scores.items()
            if numbers["verdict"] == "better"
        ]
        unanswered = sum(count for status, count in blind.statuses.items() if status != "answered") if blind else 0
        if blind and unanswered:
            warnings.append(
                f"{blind.model} gave no answer to {unanswered} questions without their images; "
                + ("it has no score." if blind.scores[metric]["nonresponse"] is not None else "they count as wrong.")
            )
        if self.repeated_questions:
            warnings.append(
                f"{len(self.repeated_questions)} questions are asked more than once of the same image.",
            )
        pairs = self.of_pairs
        if pairs and pairs.position_p < 0.05:
            warnings.append(
                f"Option A is right for the first image in {pairs.image_1_is_a} of {pairs.pairs} "
                "pairs "
                f"(p = {pairs.position_p:.3f})."
            )
        if self.same_images:
            warnings.append(f"{len(self.same_images)} groups of images show the same picture.")
        if self.images_in_splits:
            warnings.append(
                f"Images in more than one split: {format_overlaps(self.images_in_splits)}.",
            )
        if self.perfect["verdict"] != "better":
            warnings.append(
                "A perfect model cannot be told from guessing: 95% interval "
                f"{self.perfect['low']:.1f} to 100 "
                f"(chance {self.perfect['chance']:.1f}). More questions on other images and "
                "patients are needed."
            )
        return warnings


def blind_metrics(family: str) -> tuple[str, ...]:
    """List the metrics that are reported for answers without images.

    Args:
        family: benchmark family.

    Returns:
        Names of metrics; the last one is used to decide whether the text gives answers away.
    """
    return (OVERALL_METRICS[family], "individual_accuracy") if family == PAIRS_FAMILY else (OVERALL_METRICS[family],)


def measure_quality(
    data: str | Path, ask_blind: Callable[[str, pd.DataFrame], BlindModel] | None = None
) -> QualityReport:
    """Measure the quality of a dataset, on its first split that has answers.

    Args:
        data: folder of a built dataset, or its id on the Hub. Images are compared unless it was
            built without them.
        ask_blind: `score_blind` with its model and settings bound; None: no model is asked.

    Returns:
        The report.

    Raises:
        BadInput: no split has answers.
    """
    repository = open_repository(data)
    # A test split may be published without its answers.
    for split in repository.splits:
        questions = repository.questions(split)
        questions = questions[questions["answer"].map(len) > 0]
        if len(questions):
            break
    else:
        raise BadInput(
            f"{data}: no split has answers, which are needed to measure what the text gives away.",
        )
    family = repository.family

    def score_choices(choices: list[Any]) -> dict[str, dict[str, Any]]:
        answers = {
            "question_id": questions["question_id"],
            "choice": choices,
            "sample": 0,
            "status": "answered",
        }
        scores = compute_scores(family, questions, pd.DataFrame(answers)).scores
        return {metric: scores[metric].model_dump() for metric in blind_metrics(family)}

    split_digests = {
        part: dict(_image_digests(repository, part)) for part in repository.splits if repository.has_images
    }
    shared_digests = find_split_overlaps(
        {part: digests.values() for part, digests in split_digests.items()},
    )
    digests = split_digests.get(split, {})
    image_digests = pd.Series(digests, dtype=object)
    same_images = image_digests.index.to_series().groupby(image_digests, sort=False).agg(list)

    # Questions that differ only in letter case, spacing or the order of options count as the same.
    text = questions["question"].str.casefold().str.split().str.join(" ")
    options = questions["options"].map(
        lambda row_options: tuple(sorted(map(str.casefold, row_options))),
    )
    repeated = questions["question_id"].groupby([questions["case_id"], questions["image_id"], text, options]).agg(list)
    return QualityReport(
        name=repository.name,
        family=family,
        split=split,
        questions=len(questions),
        images=question_image_ids(questions).nunique(),
        images_seen=len(digests),
        rules={rule: score_choices([(index,) for index in answer(questions)]) for rule, answer in BLIND_RULES.items()},
        perfect=score_choices([tuple(answer) for answer in questions["answer"]])[OVERALL_METRICS[family]],
        repeated_questions=[ids for ids in repeated if len(ids) > 1],
        same_images=[names for names in same_images if len(names) > 1],
        images_in_splits={name: shared_digests[digest] for name, digest in digests.items() if digest in shared_digests},
        of_pairs=_measure_pairs(questions) if family == PAIRS_FAMILY else None,
        blind_model=ask_blind(family, questions) if ask_blind else None,
    )


def _image_digests(repository: Repository, split: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each image of a split and the digest of its pixels."""
    for case in repository.cases(split):
        for name, encoded in case.images.items():
            yield name, make_picture(encoded).digest()


def _option_rule(pick: Callable[[list[str]], int]) -> Callable[[pd.DataFrame], list[int]]:
    """Make a rule that answers each question by its options alone."""
    return lambda questions: [pick(list(options)) for options in questions["options"]]


def _most_frequent_answer(questions: pd.DataFrame) -> list[int]:
    """Answer with the option that is most often correct for the same text in other cases.

    If no other case has the text, the first option is chosen.
    """
    correct: dict[str, Counter[str]] = defaultdict(Counter)
    case_correct: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = questions[["case_id", "question", "options", "answer"]].to_dict("records")
    for row in rows:
        texts = [row["options"][index] for index in row["answer"]]
        correct[row["question"]].update(texts)
        case_correct[row["case_id"], row["question"]].update(texts)
    choices = []
    for row in rows:
        # Leave out the question's own case, since otherwise its own answer would count.
        elsewhere = correct[row["question"]] - case_correct[row["case_id"], row["question"]]
        counts = [elsewhere[option] for option in row["options"]]
        choices.append(counts.index(max(counts)))
    return choices


BLIND_RULES: dict[str, Callable[[pd.DataFrame], list[int]]] = {
    "always the first option": _option_rule(lambda options: 0),
    "always the last option": _option_rule(lambda options: len(options) - 1),
    "the longest option": _option_rule(
        lambda options: max(range(len(options)), key=lambda k: len(options[k])),
    ),
    "the shortest option": _option_rule(
        lambda options: min(range(len(options)), key=lambda k: len(options[k])),
    ),
    "what is most often right for this text elsewhere in the set": _most_frequent_answer,
}
"""Rules that answer without images: name -> function that returns the index of the chosen option of
each question.
"""


def _measure_pairs(questions: pd.DataFrame) -> PairQuality:
    """Measure pairs; `questions` has two rows per pair, which differ in image and answer."""
    is_first = ~questions["case_id"].duplicated().to_numpy()
    first_rows = questions[is_first]
    component_sizes = np.unique(image_clusters(questions)[is_first], return_counts=True)[1]
    pairs, effective = len(first_rows), ClusterSizes.from_sizes(component_sizes).effective_clusters
    image_1_is_a = sum(tuple(answer) == (0,) for answer in first_rows["answer"])
    return PairQuality(
        pairs=pairs,
        components=len(component_sizes),
        largest_component=int(component_sizes.max()),
        effective_pairs=effective,
        image_1_is_a=image_1_is_a,
        position_p=float(binomtest(image_1_is_a, pairs).pvalue),
        smallest_difference={f"{share:.0%}": smallest_difference(effective, share) for share in DISCORDANT_SHARES},
        sim_med=list(map(float, first_rows["sim_med"])),
        sim_gen=list(map(float, first_rows["sim_gen"])),
    )


def smallest_difference(pairs: float, discordant: float) -> float | None:
    """Compute the smallest difference in set accuracy between two models that is detectable.

    A difference is detectable if a paired test at the 5 % level has a power of 80 % to find it. The
    difference d solves Connor's formula for McNemar's test, n = (z_a sqrt(p) + z_b sqrt(p - d^2))^2
    / d^2.

    Args:
        pairs: number of independent pairs; for pairs that share images, the effective number.
        discordant: p, the share of pairs that exactly one of the two models gets right.

    Returns:
        d in percentage points; None if no difference is detectable, since d cannot exceed the
        discordant share.
    """
    z_a, z_b = norm.ppf(1 - 0.05 / 2), norm.ppf(0.8)
    # Squaring z_b sqrt(p - d^2) = d sqrt(n) - z_a sqrt(p) gives a quadratic equation in d.
    a, b, c = (
        pairs + z_b**2,
        -2 * z_a * math.sqrt(discordant * pairs),
        (z_a**2 - z_b**2) * discordant,
    )
    discriminant = b * b - 4 * a * c
    difference = (-b + math.sqrt(discriminant)) / (2 * a) if discriminant >= 0 else math.inf
    return 100 * difference if difference <= discordant else None


# The page

REPORT_STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --ink: #1d2733; --accent: #0f766e; --faint: #8a94a0 }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --ink: #e6e9ec } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15rem 1rem .15rem 0; text-align: left }
.wide { overflow-x: auto } @media (max-width: 480px) { td, th { padding-right: .5rem; font-size: 15px } }
svg { display: block; width: 100%; height: 8rem } rect { fill: var(--accent) } line { stroke: var(--faint) }
.ends { display: flex; justify-content: space-between; font-size: 14px; font-variant-numeric: tabular-nums }
"""


def render_report(quality: QualityReport) -> str:
    """Render the quality report as an HTML page."""
    warnings = "".join(f"<li>{escape(text)}</li>" for text in quality.warnings()) or "<li>Nothing stands out.</li>"
    rows = [(rule, *row) for rule, scores in quality.rules.items() for row in score_rows(scores)]
    image_note = (
        f"{quality.images_seen} of {quality.images} images were compared by their pixels. The same "
        "picture: "
        f"{format_groups(quality.same_images)}."
        if quality.images_seen
        else "The dataset was built without images, so they were not compared."
    )
    blind = ""
    if quality.blind_model is not None:
        model = quality.blind_model
        statuses = ", ".join(f"{count} {status}" for status, count in model.statuses.items() if count)
        blind = (
            f"<h3>{escape(model.model)}, shown no image (prompt {escape(model.prompt)}, "
            f"temperature {model.temperature:g}: {statuses})</h3>"
            + render_table(("asked without images", *SCORE_TABLE_HEADINGS), score_rows(model.scores))
        )
    return _render_document(
        f"{quality.name}: quality",
        f"""<h1>{escape(quality.name)}</h1>
<p>{quality.questions} questions ({escape(quality.split)}) on {quality.images} images, scored as {escape(quality.family)}.</p>
<h2>Worth a look</h2><ul>{warnings}</ul>
<h2>Answers without the image</h2>
{render_table(("answerer", "metric", *SCORE_TABLE_HEADINGS), rows)}{blind}
{_render_pairs(quality.of_pairs) if quality.of_pairs else ""}
<h2>Questions</h2><p>Asked more than once of one image: {format_groups(quality.repeated_questions)}.</p>
<h2>Images</h2><p>{image_note}</p>""",
    )


def _render_document(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>
<style>{REPORT_STYLE}</style></head><body>
{body}
</body></html>
"""


def write_histograms(cosines: Mapping[str, np.ndarray], out: Path) -> None:
    """Write a page with a histogram of each encoder's cosines.

    Args:
        cosines: encoder -> cosine of the two images of each pair; the pairs are the same for all
            encoders.
        out: page to write (.html).
    """
    count = len(next(iter(cosines.values())))
    plots = "".join(
        f"<h2>{escape(encoder)}</h2>{render_histogram(encoder_cosines)}" for encoder, encoder_cosines in cosines.items()
    )
    heading = f"<h1>Similarity of {count} pairs</h1><p>Cosine of the two images of each pair, by encoder.</p>"
    replace_file(out, _render_document("Similarity of the pairs", heading + plots).encode())


SCORE_TABLE_HEADINGS = ("%", "95% interval", "chance", "than chance")


def _render_pairs(quality: PairQuality) -> str:
    """Render the section on MediConfusion's pairs."""
    differences = "; ".join(
        f"{'no difference' if points is None else f'{points:.1f} points'} if exactly one of them is right on {escape(share)} of the pairs"
        for share, points in quality.smallest_difference.items()
    )
    return f"""<p>Both images of a pair have the same question and options but different answers, so answering without the images gets no pair right, but half of the
    questions. Option A is right for the first image in {quality.image_1_is_a} of {quality.pairs} pairs (p = {quality.position_p:.2f} against a half).</p>
<h2>Smallest detectable difference</h2>
<p>{quality.pairs} pairs, {quality.components} groups of pairs that share images or patients (the largest has {quality.largest_component}):
equivalent to {quality.effective_pairs:.1f} independent pairs if all pairs of a group are answered alike.</p>
<p>Detectable between two models with 80% power: {differences}. Smaller differences in set accuracy cannot be detected with this number of independent pairs.</p>
<h2>Similarities of the pairs</h2>
<h3>medical encoder</h3>{render_histogram(quality.sim_med)}<h3>general encoder</h3>{render_histogram(quality.sim_gen)}"""


def score_rows(scores: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Format scores as rows for `render_table`.

    Args:
        scores: metric -> value, low, high, chance, verdict and nonresponse.

    Returns:
        Name, value, 95% interval, chance and verdict of each score; percentages have one decimal.
    """
    names = {
        "set_accuracy": "set accuracy",
        "individual_accuracy": "individual accuracy",
        "share_A": "answers A",
    }
    rows: list[tuple[str, ...]] = []
    for metric, numbers in scores.items():
        interval = "" if numbers["low"] is None else f"{numbers['low']:.1f} to {numbers['high']:.1f}"
        chance = "" if numbers["chance"] is None else f"{numbers['chance']:.1f}"
        # A score is withheld if too many questions have no answer; it is undefined if no case
        # counts for the metric.
        missing = "no score" if numbers["nonresponse"] is not None else "undefined"
        percentage = missing if numbers["value"] is None else f"{numbers['value']:.1f}"
        rows.append(
            (
                names.get(metric, metric),
                percentage,
                interval,
                chance,
                (numbers["verdict"] or "").replace("_", " "),
            )
        )
    return rows


def format_groups(groups: list[list[str]]) -> str:
    """Format groups of ids as HTML: `a = b; c = d`, or `none`."""
    return "; ".join(escape(" = ".join(group)) for group in groups) or "none"


def render_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Render an HTML table with escaped cells, or "none" if there are no rows.

    Args:
        head: names of the columns.
        rows: cells (texts or numbers).
    """
    table = pd.DataFrame(list(rows), columns=list(head)).to_html(index=False, border=0)
    return f'<div class="wide">{table}</div>' if rows else "<p>none</p>"


def render_histogram(values: Sequence[float] | np.ndarray, bins: int = 24) -> str:
    """Render a histogram of cosines as SVG; its range, median and largest bin are given as text.

    Args:
        values: the cosines.
        bins: number of bins.
    """
    counts, edges = np.histogram(values, bins)
    largest = max(1, int(counts.max()))
    bars = "".join(
        f'<rect x="{24 * k:.1f}" y="{110 - 100 * count / largest:.1f}" width="22" '
        f'height="{100 * count / largest:.1f}">'
        f"<title>{count} from {edges[k]:.3f} to {edges[k + 1]:.3f}</title></rect>"
        for k, count in enumerate(counts)
    )
    # Text stays outside the SVG: preserveAspectRatio="none" would stretch it.
    ends = (
        f"<span>{edges[0]:.3f}</span><span>median {np.median(values):.3f}, largest bin "
        f"{largest}</span>"
        f"<span>{edges[-1]:.3f}</span>"
    )
    axis = f'<line x1="0" y1="110" x2="{24 * bins}" y2="110"/>'
    return (
        f'<svg viewBox="0 0 {24 * bins} 112" preserveAspectRatio="none" '
        f'role="img">{axis}{bars}</svg>'
        f'<div class="ends">{ends}</div>'
    )


def write_quality_report(quality: QualityReport, out: Path) -> None:
    """Write the report as a page, and its numbers to a .json file next to it.

    Args:
        quality: the report.
        out: page to write (.html).
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, render_report(quality).encode())
    numbers = asdict(quality) | {"warnings": quality.warnings()}
    # The file calls the family "format", as `medprobe build` does.
    numbers["format"] = numbers.pop("family")
    write_json(out.with_suffix(".json"), numbers, ensure_ascii=True)
