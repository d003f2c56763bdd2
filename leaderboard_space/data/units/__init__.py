"""What the answers of a section give: units of every score for all of its runs, read, kept and scored."""
