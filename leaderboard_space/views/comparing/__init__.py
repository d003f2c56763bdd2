"""The page that compares results."""
