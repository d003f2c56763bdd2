"""What travels and is stored: requests, responses, scores, results; what they may be called and how large they may be."""
