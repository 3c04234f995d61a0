"""How much memory there is for the KV pool, and what a setting means by it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import torch

from treille.runtime.errors import InvalidRequest

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def available_memory(device: torch.device, *, root: Path = Path("/")) -> int:
    """Bytes that could be had now without anything being swapped or killed.

    On CUDA what the device has free. On Linux what the kernel says is available, and no more than any control
    group (version 1 or 2) that this process is in has left; what a group keeps of files it can drop counts as
    left. Elsewhere all memory that the machine has. `root` is for tests.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    found = _number_after(root / "proc/meminfo", "MemAvailable:")
    if found is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([found * 1024, *_left_in_groups(root)]))


def pool_bytes(kv_memory: int | float | str, available: int, *, field: str = "kv_memory") -> int:
    """Bytes that a setting stands for: a number of bytes, a share of what is available (a float between 0 and
    1), or text: "512MiB", "2GB", "40%", "0.4". Raises InvalidRequest."""
    if isinstance(kv_memory, int) and not isinstance(kv_memory, bool) and kv_memory > 0:
        return kv_memory
    if isinstance(kv_memory, float) and 0 < kv_memory < 1:
        return int(kv_memory * available)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|(?:[kmg]i?)?b?)", str(kv_memory).strip().lower())
    number = float(found[1]) if found and isinstance(kv_memory, str) else 0.0
    if found and found[2] == "%" and 0 < number < 100:
        return int(number / 100 * available)
    if found and found[2] == "" and 0 < number < 1:
        return int(number * available)
    if found and found[2] != "%" and number >= 1:
        return int(number * UNITS[found[2].removesuffix("b")])
    raise InvalidRequest(
        f"{field} must be bytes, a share of the available memory such as 0.4 or 40%, "
        f"or text such as 2GiB, not {kv_memory!r}",
        field=field,
    )


def shown(num_bytes: int) -> str:
    """Bytes for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.4g} {unit}"
    return f"{num_bytes} bytes"


def _left_in_groups(root: Path) -> Iterator[int]:
    """What each control group of this process may still take."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # A container often sees its own group as the mount's root, and not under the path that it is told.
        inner = PurePosixPath(path.lstrip("/"))
        for folder in {mount, *(mount / part for part in (inner, *inner.parents))}:
            limit, used = _number(folder / names[0]), _number(folder / names[1])
            if limit is not None and used is not None:
                yield limit - used + (_number_after(folder / "memory.stat", names[2]) or 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """A file's only number; None where it has none ("max": no limit)."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def _number_after(path: Path, name: str) -> int | None:
    for line in _lines(path):
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None
