"""Submitting results: reading strangers' files, recomputing, stores that are folders or Hub repositories, verifying pull requests."""
