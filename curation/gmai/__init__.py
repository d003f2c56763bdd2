"""Build a GMAI-MMBench-style benchmark from labelled data in many formats.

    medprobe curate gmai sources.yaml --out NAME

See also: the stages in order (`pipeline.py`), sources.yaml (`sources.py`), the readers
(`curation/readers/`).
"""
