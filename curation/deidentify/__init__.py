"""From a hospital's files to images without names: DICOM by PS3.15, burned-in text put before a person, a report of what was removed."""
