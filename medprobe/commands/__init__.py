"""The commands of `medprobe`, grouped by what they work on.

A command imports its dependencies only when it runs, so that `--help` is fast.
"""
