"""`medprobe curate`: one command for each step from images to a benchmark.

The commands themselves are in `commands/`, grouped by stage.
"""

from collections.abc import Callable

import typer

from curation.commands import mining, pair_questions, patients, sets

app = typer.Typer(
    help="Make a custom benchmark: mine confusing pairs, write questions, review, export.",
    no_args_is_help=True,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "deidentify": patients.deidentify,
    "texts": patients.texts,
    "withdraw": patients.withdraw,
    "id": patients.group_id,
    "embed": mining.embed,
    "pairs": mining.pairs,
    "histograms": mining.histograms,
    "write": pair_questions.write_drafts,
    "captions": pair_questions.captions,
    "categorize": pair_questions.categorize,
    "patterns": pair_questions.patterns,
    "review": pair_questions.review,
    "export": pair_questions.export_benchmark,
    "quality": pair_questions.quality,
    "probe": sets.probe,
    "hallucinate": sets.hallucinate,
    "exam": sets.exam,
    "gmai": sets.gmai,
    "gmai-tag": sets.gmai_tag,
    "gmai-validate": sets.gmai_validate,
}
"""Name -> command. `--help` lists the commands in this order, that of the work."""
for command_name, command in COMMANDS.items():
    app.command(command_name)(command)
