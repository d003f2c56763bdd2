"""What the board knows: the store read into sections, scored, ranked and grouped."""
