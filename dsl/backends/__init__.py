"""Where programs run: backends behind one protocol."""
