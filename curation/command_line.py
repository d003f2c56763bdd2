"""`medprobe curate`: one command for each step from images to a benchmark.

The commands themselves are in `commands/`, grouped by stage.
"""

from __future__ import annotations

import typer

from curation.commands import custom_sets, exam, gmai, mining, pair_questions, patients

app = typer.Typer(
    help="Make a custom benchmark: mine confusing pairs, write questions, review, export.",
    no_args_is_help=True,
)
# `--help` lists the commands in this order, that of the work.
app.command()(patients.deidentify)
app.command()(patients.texts)
app.command()(patients.withdraw)
app.command("id")(patients.group_id)
app.command()(mining.embed)
app.command()(mining.pairs)
app.command()(mining.histograms)
app.command("write")(pair_questions.write_drafts)
app.command()(pair_questions.captions)
app.command()(pair_questions.categorize)
app.command()(pair_questions.patterns)
app.command()(pair_questions.review)
app.command("export")(pair_questions.export_benchmark)
app.command()(pair_questions.quality)
app.command()(custom_sets.probe)
app.command()(custom_sets.hallucinate)
app.command()(exam.exam)
app.command()(gmai.gmai)
app.command("gmai-tag")(gmai.gmai_tag)
app.command("gmai-validate")(gmai.gmai_validate)
