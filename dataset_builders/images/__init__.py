"""Find, check, clean, download and draw images."""
