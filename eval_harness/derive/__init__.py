"""Derive readings, statuses, scores, breakdowns and units from a run and its answers.

Every number of a run, stored or shown, comes from this package.

run_files.py    the files of a run, submitted and derived, and their tables
reading.py      the option that each answer chooses, by rules and by a judge model's replies
metrics.py      what each metric is; units and scores; the headline score
derivation.py   `derive`, and the key under which its output is stored
"""
