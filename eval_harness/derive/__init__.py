"""Derive readings, statuses, scores, breakdowns and units from a run and its answers: the only source of numbers.

answer_table.py   what came back: `answers.parquet`, `judge.parquet`
reading.py        which option each answer chooses, by rules and by the replies of a judge model
scoring.py        units and scores of a benchmark, by its name; metrics.py and summary.py, what they are made of
derivation.py     `derive`, and the key under which its output is kept
files.py          the files of a result: what is sent, and what is derived beside it
"""
