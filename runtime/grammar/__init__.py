"""Constraints: byte automata, token masks, matchers."""
