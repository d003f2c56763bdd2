"""Units of every score for all runs of a section: derived, cached and scored."""
