"""Units, grading, intervals, tests and ranks: the arithmetic of scores, the same for every benchmark."""
