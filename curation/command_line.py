"""`medprobe curate`: one command for each step from images to a benchmark. The commands themselves are in `commands/`, by stage."""

from __future__ import annotations

import typer

from curation.commands import custom_sets, gmai, mining, patients, questions

app = typer.Typer(
    help="Make a custom benchmark: mine confusing pairs, write questions, review, export.", no_args_is_help=True
)
app.command()(patients.deidentify)
app.command()(patients.texts)
app.command()(patients.withdraw)
app.command("id")(patients.group_id)
app.command()(mining.embed)
app.command()(mining.pairs)
app.command()(mining.histograms)
app.command()(questions.write)
app.command()(questions.captions)
app.command()(questions.categorize)
app.command()(questions.patterns)
app.command()(questions.review)
app.command("export")(questions.export_benchmark)
app.command()(questions.quality)
app.command()(custom_sets.probe)
app.command()(custom_sets.hallucinate)
app.command()(gmai.gmai)
app.command("gmai-tag")(gmai.gmai_tag)
app.command("gmai-validate")(gmai.gmai_validate)
