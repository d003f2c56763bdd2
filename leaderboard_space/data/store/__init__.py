"""The results store as the board reads it: sections, scored units kept on disk, datasets that are
trusted.
"""
