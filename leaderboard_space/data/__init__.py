"""The board's data: the store read into sections, scored, ranked and grouped."""
