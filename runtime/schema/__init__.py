"""JSON Schema: documents, what a value may be, and the machine that follows JSON texts."""
