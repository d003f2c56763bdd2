"""The commands, by what they work on. Each imports what it needs when it runs, so that `--help` is quick."""
