"""Read files of answers in every supported format, for `eval --model recorded:` and `submit`.

Recognises the format, and limits and checks the content.
"""
