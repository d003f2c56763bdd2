"""Derive readings, statuses, scores, breakdowns and units from a run and its answers.

Every number of a run, stored or shown, comes from this package.

answer_table.py   the model's answers: `answers.parquet`, `judge.parquet`
reading.py        the option that each answer chooses, by rules and by a judge model's replies
scoring.py        units and scores of a benchmark, built from metrics.py and summary.py
derivation.py     `derive`, and the key under which its output is stored
run_files.py      the files of a result: submitted ones and derived ones
"""
