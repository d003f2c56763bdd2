"""Readers of labelled pictures, volumes and DICOM of every format: pictures with their targets, and what had to be skipped."""
