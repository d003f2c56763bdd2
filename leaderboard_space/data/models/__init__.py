"""What is known of models beside their results."""
