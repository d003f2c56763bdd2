"""A Hugging Face Hub on the loopback: a real HTTP server for unmodified `huggingface_hub` and
`datasets` clients.

For tests: repositories, commits, LFS storage, tags, pull requests, accounts with different
permissions, faults on demand. State is in memory. There are no web pages, search, viewer or Space
builds.

from tests.localhub.server import LocalHub
"""
