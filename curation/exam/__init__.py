"""Make an exam without annotators: every key follows from a header or from how a picture was made.

`series.py` reads and checks headers, `pictures.py` makes the pictures, `tasks.py` the questions,
`build.py` chooses among them and writes a set in MediConfusion's format.
"""
