"""Treille: a structured-generation language and its runtime."""
