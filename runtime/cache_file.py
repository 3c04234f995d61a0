"""The prefix cache on disk: one safetensors file, which a restart warms from.

It holds what requests without a `cache_salt` left in the tree: salts are secrets of others, and so is what
they keep apart. Tensors: `edges`, int64 [n, 2], for each edge of the tree its parent (0: the start, else 1 +
the parent's row, which is earlier) and its number of tokens; `tokens`, int64, of all edges in order;
`pages.i`, the pages of the pool's i-th tensor in the same order. The metadata say what all of it depends on,
and hold the tensors' SHA-256. A file that is not sound, or of something else, is never used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from collections.abc import Hashable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import mkstemp

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from treille.kernels.api import KVCache
from treille.radix.cache import PrefixCache
from treille.radix.edges import Edge, first_edges
from treille.runtime.errors import CacheFileError
from treille.runtime.host import pool_tensors
from treille.runtime.memory import available_memory
from treille.runtime.models.fingerprint import fingerprint
from treille.runtime.models.load import LoadedModel

# Raised whenever the file's own form changes.
FORMAT = 1
DIGESTS = "sha256"

logger = logging.getLogger("treille")


class CacheFile:
    """A file at `path` for edges and pages of one model, dtype and layout."""

    def __init__(self, path: Path, loaded: LoadedModel, kv: KVCache) -> None:
        """Raises ModelError if the model was not read from files."""
        self.path = path
        self._page_size = kv.page_size
        self._num_ids = loaded.config.vocab_size
        self._pools = pool_tensors(kv)
        shapes = sorted({f"{list(pool.shape[1:])}" for pool in self._pools})
        # What keys and values depend on. A release may lay out or compute them differently.
        self._origin: Mapping[str, str] = {
            "format": str(FORMAT),
            "versions": f"treille {version('treille')}, torch {torch.__version__}",
            "model": fingerprint(loaded),
            "dtype": str(kv.dtype).removeprefix("torch."),
            "page_size": str(kv.page_size),
            "layout": f"{kv.device.type}, {len(self._pools)} of {' and '.join(shapes)}",
        }

    def write(self, edges: Sequence[Edge]) -> None:
        """Replace the file by one that holds these edges and what is in their pages now.

        The new one is complete before the old one goes, and only this user may read it, since it holds
        prompts. Takes memory for the pages once more. Raises CacheFileError.
        """
        scratch: str | None = None
        try:
            rows = torch.tensor([page for edge in edges for page in edge.pages], dtype=torch.int64)
            index = [(0 if edge.parent is None else edge.parent + 1, len(edge.tokens)) for edge in edges]
            tokens = array("q")
            for edge in edges:
                tokens.extend(edge.tokens)
            tensors = {
                "edges": torch.tensor(index, dtype=torch.int64).reshape(-1, 2),
                "tokens": torch.tensor(tokens, dtype=torch.int64),
            }
            for number, pool in enumerate(self._pools):
                tensors[f"pages.{number}"] = pool[rows.to(pool.device)].cpu()
            digests = {name: _digest(tensor) for name, tensor in tensors.items()}
            handle, scratch = mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
            os.close(handle)
            save_file(tensors, scratch, metadata={**self._origin, DIGESTS: json.dumps(digests)})
            os.chmod(scratch, 0o600)
            os.replace(scratch, self.path)
        except (OSError, SafetensorError, MemoryError, RuntimeError) as error:
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)
            raise CacheFileError(f"{self.path} cannot be written: {error}") from error

    def read(self) -> tuple[list[Edge], list[Tensor]]:
        """The edges, whose pages are numbered from 0 in order, and for each tensor of the pool those pages.

        Raises CacheFileError for a file that is damaged or of something else.
        """
        try:
            with safe_open(self.path, framework="pt", device="cpu") as file:
                found = file.metadata() or {}
                for name, ours in self._origin.items():
                    if found.get(name) != ours:
                        raise CacheFileError(f"its {name} is {found.get(name)}, and here it is {ours}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, MemoryError, RuntimeError) as error:
            raise CacheFileError(f"it cannot be read: {error}") from error
        if _digests(found) != {name: _digest(tensor) for name, tensor in tensors.items()}:
            raise CacheFileError("it is damaged: what it holds is not what was written")
        edges = self._edges(tensors)
        pages = [tensors.get(f"pages.{number}") for number in range(len(self._pools))]
        count = sum(len(edge.pages) for edge in edges)
        for pool, kept in zip(self._pools, pages, strict=True):
            if kept is None or kept.dtype != pool.dtype or kept.shape != (count, *pool.shape[1:]):
                raise CacheFileError("it is damaged: it lacks pages, or they are of another form")
        return edges, [kept for kept in pages if kept is not None]

    def _edges(self, tensors: Mapping[str, Tensor]) -> list[Edge]:
        """The edges, if they make a tree."""
        index, ids = tensors.get("edges"), tensors.get("tokens")
        if index is None or ids is None or index.dtype != torch.int64 or ids.dtype != torch.int64:
            raise CacheFileError("it is damaged: it has no tree")
        if index.dim() != 2 or index.shape[1] != 2 or ids.dim() != 1:
            raise CacheFileError("it is damaged: its tree has another form")
        tokens = array("q", ids.numpy().tobytes())
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._num_ids:
            raise CacheFileError(f"it holds token ids beyond the model's {self._num_ids}")
        edges: list[Edge] = []
        start = num_pages = 0
        for parent, length in index.tolist():
            is_placed = parent == 0 or (
                0 < parent <= len(edges) and len(edges[parent - 1].tokens) % self._page_size == 0
            )
            if not is_placed or not 0 < length <= len(tokens) - start:
                raise CacheFileError("it is damaged: its edges do not make a tree")
            count = -(-length // self._page_size)
            pages = tuple(range(num_pages, num_pages + count))
            edges.append(Edge(parent - 1 if parent else None, tokens[start : start + length], pages))
            start, num_pages = start + length, num_pages + count
        if start != len(tokens):
            raise CacheFileError("it is damaged: tokens are left over")
        return edges


class SavedCache:
    """A cache that is warmed from a file, and saved to it."""

    def __init__(self, file: CacheFile, cache: PrefixCache, kv: KVCache, namespace: Hashable) -> None:
        self._file = file
        self._cache = cache
        self._pools = pool_tensors(kv)
        self._namespace = namespace

    def warm(self) -> None:
        """Take what the file holds, as far as the pool has room: what was used last. A file that is not used
        is named in the log, with the reason; none at all is no reason for a word."""
        if not self._file.path.exists():
            return
        try:
            edges, pages = self._file.read()
        except CacheFileError as error:
            logger.warning("the cache file %s is not used: %s", self._file.path, error)
            return
        taken = self._cache.restore(edges, namespace=self._namespace)
        ours, theirs = torch.tensor([*taken], dtype=torch.int64), torch.tensor([*taken.values()])
        for pool, kept in zip(self._pools, pages, strict=True):
            pool[ours.to(pool.device)] = kept[theirs.long()].to(pool.device)

    def save(self) -> int:
        """Write what is cached now, as many pages as half of the memory that is available holds once more:
        what was used last. Returns how many. Raises CacheFileError."""
        each = sum(pool[0].nbytes for pool in self._pools)
        most = available_memory(torch.device("cpu")) // 2 // each
        edges = first_edges(self._cache.edges(namespace=self._namespace), most, self._cache.page_size)
        self._file.write(edges)
        return sum(len(edge.pages) for edge in edges)

    def keep(self) -> None:
        """`save`, for the end of an engine: a failure goes to the log."""
        try:
            self.save()
        except CacheFileError as error:
            logger.warning("the prefix cache is not kept: %s", error)


def _digests(metadata: Mapping[str, str]) -> object:
    try:
        return json.loads(metadata.get(DIGESTS, ""))
    except (ValueError, RecursionError):
        return None


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()
