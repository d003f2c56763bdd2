"""The one list of the benchmarks, apart from their packages, so that the command line can name them without loading any."""

BENCHMARKS: tuple[str, ...] = ("mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa", "probmed-vqa-rad")
"""The official benchmarks. A custom set has a name of its own and the family of one of these."""
