"""Where expressions live: rows in `store.py`, put together in `algebra.py`, derived in `derive.py`, made from
trees in `build.py`, followed as states in `states.py` and `arena.py`."""
