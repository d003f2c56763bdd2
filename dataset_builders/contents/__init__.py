"""What a dataset repository holds beside its Parquet files: card, tasks, statements, ids and groups."""
