"""Results of many runs: reading stores, tables, comparisons, aggregates, publishing."""
