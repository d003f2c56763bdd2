"""ProbMed- and HALT-MedVQA-style sets made from a user's own tables and questions."""
