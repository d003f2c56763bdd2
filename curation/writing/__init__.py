"""Questions, categories, failure patterns and facts from captions, written by a language model."""
