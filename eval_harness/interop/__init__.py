"""Other harnesses: the benchmarks as their tasks, and readers of what they write."""
