"""Questions with images and answers."""
