"""Make an exam without annotators: every key follows from a header or from how a picture was made.

`series.py` reads and checks headers, `exam_tasks.py` has the questions and what is drawn for them,
`pairs.py` chooses among them, makes the pictures and writes a set in MediConfusion's format.
"""
