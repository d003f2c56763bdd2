"""Grading, scoring units, confidence intervals, significance tests and ranks for all benchmarks."""
