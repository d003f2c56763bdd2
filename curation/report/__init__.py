"""The quality report on a benchmark before it is published."""
