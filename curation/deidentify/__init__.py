"""De-identify a hospital's files.

Covers DICOM by PS3.15, review of burned-in text, and a report of what was removed.
"""
