"""De-identify a hospital's files.

DICOM by PS3.15, burned-in text for review, and a report of what was removed.
"""
