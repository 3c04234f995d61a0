"""`fingerprint`: what tells one model's keys and values from another's."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from treille.runtime.errors import ModelError
from treille.runtime.models.load import LoadedModel

BLOCK = 2**24  # bytes; blocks are digested side by side
WORKERS = min(16, os.cpu_count() or 1)


def fingerprint(loaded: LoadedModel) -> str:
    """A SHA-256, in hexadecimal, over the config, how the weights were rounded, and every byte of the files
    that they were read from: two models that differ in one row of the embedding differ here.

    Takes about a second for each gigabyte and processor core. Raises ModelError if the model was not read
    from files, or they cannot be read now.
    """
    if not loaded.weight_files:
        raise ModelError(f"{loaded.name} was not loaded from files, so nothing says which model it is")
    try:
        sizes = [path.stat().st_size for path in loaded.weight_files]
        form = (loaded.config, loaded.bits, loaded.deterministic, sizes)
        total = hashlib.sha256(repr(form).encode())
        blocks = [
            (path, start)
            for path, size in zip(loaded.weight_files, sizes, strict=True)
            for start in range(0, size, BLOCK)
        ]
        with ThreadPoolExecutor(WORKERS) as workers:
            for digest in workers.map(_digest, blocks):
                total.update(digest)
    except OSError as error:
        raise ModelError(f"the weights of {loaded.name} cannot be read again: {error}") from error
    return total.hexdigest()


def _digest(block: tuple[Path, int]) -> bytes:
    path, start = block
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(BLOCK)).digest()
