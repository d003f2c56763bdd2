"""The ProbMed authors' scoring arithmetic on response rows in file order, defects included, for agreement with their printed figures.

The scores of `eval_harness.benchmarks.probmed` need no row order. What this reproduces and they do not:
1. images are told apart by a change of id from one row to the next, so the same image in two positions counts twice;
2. a modality or organ group that lacks one of its two questions is dropped, except for the last image of each type, which is kept;
3. an adversarial condition or position question without its true one is skipped;
4. images without condition or position questions count in the weights (`num`) of those aspects (so do our scores);
5. their final print shows the accuracy without adversarial pairs under all three headings: read `overall` here, not that print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Figures = dict[str, float]
_TWO = ("modality", "body_part")
_PAIRED = ("entity", "grounding")


def official_figures(rows: Iterable[Mapping[str, object]]) -> dict[str, dict[str, Any]]:
    """`per_image_type`, `per_question_type`, `overall` as the authors' code computes them.

    `rows` in file order, each with `id, image_type, qa_type` and `hit` (whether the response was right, see
    `official.probmed_hit`). A figure that divides by nothing is nan (their code stops there).
    """
    by_type: dict[str, list[Mapping[str, object]]] = {}
    for row in rows:
        by_type.setdefault(str(row["image_type"]), []).append(row)
    per_type = {name: _figures(_groups(members)) for name, members in by_type.items()}
    per_question: dict[str, Figures] = {}
    for figures in per_type.values():
        for aspect, numbers in figures.items():
            total = per_question.setdefault(aspect, {"num": 0.0, **{key: 0.0 for key in numbers if key != "num"}})
            total["num"] += numbers["num"]
            for key in numbers:
                if key != "num":
                    total[key] += numbers[key] * numbers["num"]
    for total in per_question.values():
        for key in total:
            if key != "num":
                total[key] = _ratio(total[key], total["num"])
    overall = {"acc": _weighted(per_question, "acc"), "acc w.o. adv pair": _weighted(per_question, "acc w. hallu")}
    return {"per_image_type": per_type, "per_question_type": per_question, "overall": overall}


def _weighted(per_question: dict[str, Figures], key: str) -> float:
    having = [numbers for numbers in per_question.values() if key in numbers]
    return _ratio(sum(numbers[key] * numbers["num"] for numbers in having), sum(numbers["num"] for numbers in having))


def _groups(rows: list[Mapping[str, object]]) -> dict[str, list[list[Any]]]:
    """Per aspect one list of hits per image (per question for abnormality); pairs are [true, adversarial]."""
    groups: dict[str, list[list[Any]]] = {name: [] for name in ("abnormality", *_TWO, *_PAIRED)}
    current: dict[str, list[Any]] = {}
    open_pair: dict[str, tuple[str, bool]] = {}

    def close(last: bool) -> None:
        for aspect in (*_TWO, *_PAIRED):
            hits = current.get(aspect, [])
            incomplete = aspect in _TWO and len(hits) != 2 and not last
            groups[aspect].append([] if incomplete else hits)

    previous: object = rows[0]["id"] if rows else None
    for row in rows:
        if row["id"] != previous:
            close(last=False)
            current, open_pair, previous = {}, {}, row["id"]
        kind, hit = str(row["qa_type"]), bool(row["hit"])
        aspect = next(name for name in groups if name in kind)
        if aspect == "abnormality":
            groups[aspect].append([hit])
        elif aspect in _TWO:
            current.setdefault(aspect, []).append(hit)
        elif kind == "entity_hallu":
            current[aspect] = [[hit]]
        elif "gt" in kind:
            open_pair[aspect] = (kind.rsplit("_", maxsplit=1)[-1], hit)
        elif aspect in open_pair and open_pair[aspect][0] == kind.rsplit("_", maxsplit=1)[-1]:
            current.setdefault(aspect, []).append([open_pair[aspect][1], hit])
    close(last=True)
    return groups


def _figures(groups: dict[str, list[list[Any]]]) -> dict[str, Figures]:
    asked = [hits[0] for hits in groups["abnormality"]]
    result: dict[str, Figures] = {
        "abnormality": {"acc": 100 * _ratio(sum(asked), len(asked)), "num": float(len(asked))}
    }
    for aspect in _TWO:
        there = [hits for hits in groups[aspect] if hits]
        result[aspect] = {
            "acc": 100 * _ratio(sum(all(hits) for hits in there), len(there)),
            "acc w. hallu": 100 * _ratio(sum(hits[0] for hits in there), len(there)),
            "num": float(len(there)),
        }
    for aspect in _PAIRED:
        there = [pairs for pairs in groups[aspect] if pairs]
        result[aspect] = {
            "acc": 100 * _ratio(sum(all(all(pair) for pair in pairs) for pairs in there), len(there)),
            "acc w. hallu": 100 * _ratio(sum(all(pair[0] for pair in pairs) for pairs in there), len(there)),
            "num": float(len(groups[aspect])),
        }
    return result


def _ratio(top: float, base: float) -> float:
    return top / base if base else float("nan")
