"""The Hub: where it is and who we are, which commit is meant, publishing, opening a dataset repository."""
