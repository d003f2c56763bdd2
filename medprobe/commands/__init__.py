"""The commands, grouped by what they work on. Each imports its dependencies when it runs, so that `--help` is fast."""
