"""Questions, categories and failure patterns written by a language model (MediConfusion, appendix A)."""
