"""The commands of the harness, by what they work on."""
