"""Grading, scoring units, confidence intervals, significance tests and ranks, shared by all
benchmarks.
"""
