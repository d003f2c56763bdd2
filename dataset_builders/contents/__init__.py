"""Files of a dataset repository beside its Parquet files: card, eval.yaml, manifest; keyed ids."""
