"""Floor 3: from a folder of captioned images to a reviewed benchmark of one's own in the MediConfusion format.

The stages, in order, each a module and a command under `medprobe curate`: embed, pairs, write, categorize, patterns,
review, export, quality.
"""
