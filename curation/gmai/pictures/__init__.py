"""Targets, slices and windows of source images, and what is drawn on them."""
