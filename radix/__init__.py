"""The prefix cache: a radix tree over token ids that owns KV pages."""
