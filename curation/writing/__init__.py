"""Questions, categories and failure patterns from a language model (MediConfusion, appendix A)."""
