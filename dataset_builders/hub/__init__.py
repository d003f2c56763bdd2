"""The Hugging Face Hub: connect, publish, open and compare dataset repositories."""
