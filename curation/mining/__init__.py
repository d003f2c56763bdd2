"""Embeddings of two encoders and the exhaustive search for image pairs that one confuses and the other tells apart."""
