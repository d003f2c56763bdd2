"""A Hugging Face Hub on the loopback: a real HTTP server that unmodified `huggingface_hub` and `datasets` clients talk to.

Made for tests: repositories, commits, LFS and Xet storage, tags, pull requests, accounts with different rights, faults on demand.
Everything acknowledged lies on disk, so a killed server goes on where it was (a power cut is another matter: nothing is fsynced).
Not a Hub: no web pages, no search, no viewer, no Space builds.

    from tests.localhub.server import LocalHub      # in this process, or:
    python -m tests.localhub FOLDER --port 8321      # in its own, to be killed
"""
