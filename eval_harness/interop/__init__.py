"""Other harnesses: the benchmarks as their tasks, and submission of their output files."""
