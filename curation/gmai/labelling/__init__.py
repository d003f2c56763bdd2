"""Raw labels to canonical names and tags."""
