"""Choosing questions: by facets, by branches of the lexical tree."""
