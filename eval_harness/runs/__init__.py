"""Runs: select questions, build requests, ask them, keep the answers in a folder, read and score
them.
"""
