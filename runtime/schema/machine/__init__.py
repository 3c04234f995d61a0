"""The pushdown that follows JSON texts, byte by byte."""
