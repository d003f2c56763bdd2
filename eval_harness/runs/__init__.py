"""A run: which questions, as which requests, asked and kept in its folder, read and scored at the end."""
