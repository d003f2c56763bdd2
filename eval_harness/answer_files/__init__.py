"""Read files of answers in every supported format: recognise, limit and check them, for `eval
--model recorded:` and `submit`.
"""
