"""Cases as Parquet files."""
