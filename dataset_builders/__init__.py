"""Layer 1: official benchmark sources -> cases -> Parquet dataset repositories.

Imports no other layer.
"""
