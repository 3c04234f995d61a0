"""The language: expressions, programs, interpreter."""
