"""The authors read these answers as ProbMed's."""

from eval_harness.benchmarks.probmed.official import read

__all__ = ["read"]
