"""Serve the pages over HTTP: their endpoint, the limit of a request, previews of shared links."""
