"""The commands, by what they work on. Each imports its dependencies when it runs, so `--help` is
fast.
"""
