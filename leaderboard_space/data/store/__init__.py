"""The results store as the board reads it: sections of results, and trusted datasets."""
