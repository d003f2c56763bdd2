"""Floor 1: official benchmark sources -> cases -> Parquet dataset repositories. Imports none of the other floors."""
