"""Images of a folder and their metadata: index with hashes; table of captions, groups, licences."""
