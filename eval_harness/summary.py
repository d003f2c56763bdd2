"""The table printed at the end of a run: scores with interval, chance and verdict. Text only; the board draws its own."""

from __future__ import annotations

from eval_harness.results import Result, Score

_VERDICT = {"better": "better than chance", "no different": "no different from chance", "worse": "worse than chance"}


def summary(result: Result) -> str:
    """A plain-text table of a result's overall scores; percent unless the metric is a count."""
    benchmark = result.benchmark
    about = f"{benchmark.name} · {benchmark.split} · {benchmark.questions} questions"
    lines = [f"{result.model.name} on {about}"]
    if benchmark.origin == "phantom":
        lines.append("phantoms: drawn images, no medicine; these scores say nothing about a model's medical use")
    if benchmark.selection:
        lines.append(f"partial: {benchmark.selection}; not comparable with complete runs")
    width = max((len(name) for name in result.scores), default=6)
    lines.append(f"{'metric':<{width}}  {'value':>7}  {'95% interval':>13}  {'n':>6}  {'chance':>6}")
    lines += [_line(name, score, width) for name, score in result.scores.items()]
    lines.append("  ".join(f"{status}: {count}" for status, count in result.statuses.items()))
    permuted = result.environment.get("permuted") or {}
    if permuted.get("questions"):
        lines.append(
            f"options in every order, {permuted['questions']} questions: the same option throughout {permuted['same_option']:.1f} %, "
            f"the same letter {permuted['same_letter']:.1f} %"
        )
    return "\n".join(lines)


def _line(name: str, score: Score, width: int) -> str:
    value = "-" if score.value is None else f"{score.value:.2f}"
    interval = "" if score.low is None or score.high is None else f"{score.low:.1f} - {score.high:.1f}"
    chance = "" if score.chance is None else f"{score.chance:.2f}"
    verdict = _VERDICT.get(score.verdict or "", "")
    return f"{name:<{width}}  {value:>7}  {interval:>13}  {score.n:>6}  {chance:>6}  {verdict}".rstrip()
