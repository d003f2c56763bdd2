"""Facts on models other than their results."""
