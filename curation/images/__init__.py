"""The images of a folder and what is known about them: the index with hashes, the table of captions, groups and licences."""
