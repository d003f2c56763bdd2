"""What a submission is checked for."""
