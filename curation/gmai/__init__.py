"""A benchmark in the way of GMAI-MMBench from labelled data of many formats: `medprobe curate gmai sources.yaml --out NAME`.

See also: the stages in order (`pipeline.py`), what a source may be (`sources.py`), the readers (`curation/readers/`).
"""

FORMAT = "gmai-mmbench"
"""The benchmark whose format the sets have."""
