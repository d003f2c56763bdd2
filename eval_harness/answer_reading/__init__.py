"""How a response is read, one module per question asked of it; `eval_harness/answers.py` puts them together and is what others call."""
