"""Data records: requests, responses, scores, results, and the limits on their names and sizes."""
