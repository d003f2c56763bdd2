"""From cases to questions: words, options, selection, and what stands from earlier runs."""
