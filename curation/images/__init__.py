"""The images of a folder, indexed with hashes, and the table of their captions and licences."""
