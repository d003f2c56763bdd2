"""Use the benchmarks in other harnesses; `answer_files` reads their output."""
