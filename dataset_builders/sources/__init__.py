"""Reading the authors' files, and writing phantoms in their layouts."""
