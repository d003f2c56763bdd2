"""Records that travel and are stored: requests, responses, scores, results; limits on their names and sizes."""
