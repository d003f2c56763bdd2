"""Files of answers of every format: recognised, read within limits, and checked, for `eval --model recorded:` and `submit` alike."""
