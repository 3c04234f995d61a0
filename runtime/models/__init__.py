"""Models: one decoder for the Llama family, and its loaders."""
