"""Use the benchmarks in other harnesses, and submit the output files of those harnesses."""
