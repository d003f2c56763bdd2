"""Run a model: build requests, send them, store the answers in a folder, read and score them."""
