"""Make an exam without annotators: every key follows from a header or from how a picture was made.

`series.py` reads and checks headers, `rendering.py` makes the pictures, `exam_tasks.py` the
questions, `pairs.py` chooses among them and writes a set in MediConfusion's format.
"""
