"""The page on which radiologists review drafts, the log of their changes, and their agreement."""
