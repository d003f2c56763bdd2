"""A Hugging Face Hub on the loopback: a real HTTP server that unmodified `huggingface_hub` and `datasets` clients talk to.

Made for tests: repositories, commits, LFS storage, tags, pull requests, accounts with different rights, faults on demand.
Its state is in memory and ends with it. Not a Hub: no web pages, no search, no viewer, no Space builds.

    from tests.localhub.server import LocalHub
"""
