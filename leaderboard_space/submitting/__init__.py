"""The Submit tab: files of answers come in, are scored in front of who brought them, and go to the store or into a submission bundle."""
