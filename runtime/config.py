"""`EngineConfig`: the engine's settings, resolved against model and machine once, then frozen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch

from treille.radix.order import Eviction
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.models.config import ModelConfig
from treille.runtime.scheduler import SchedulePolicy

# Share of the machine's memory that the KV pool may take when nobody says how much.
CPU_KV_SHARE = 0.25
CUDA_KV_SHARE = 0.85
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine. Lengths and sizes count tokens, except `num_pages`."""

    max_seq_len: int
    max_num_seqs: int
    max_batched_tokens: int
    max_queued: int
    num_pages: int
    page_size: int
    enable_prefix_caching: bool
    schedule_policy: SchedulePolicy
    eviction: Eviction
    num_host_pages: int
    jump_forward: bool
    seed: int

    @property
    def max_pages(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.max_seq_len // self.page_size)

    @property
    def max_pinned(self) -> int:
        """Most pages that may be pinned: half of them, and never so many that the longest sequence would not
        fit beside them."""
        return max(min(self.num_pages // 2, self.num_pages - self.max_pages - 1), 0)


def resolve_config(
    model: ModelConfig,
    *,
    page_bytes: Callable[[int], int],
    device: torch.device,
    max_seq_len: int | None,
    max_num_seqs: int,
    max_batched_tokens: int,
    max_queued: int,
    kv_memory: int | str | None,
    page_size: int,
    enable_prefix_caching: bool,
    schedule_policy: str,
    eviction: str,
    host_memory: int | str | None,
    jump_forward: bool,
    seed: int,
) -> EngineConfig:
    """Check the settings and work out the pool's size.

    `page_bytes` tells what one page of a given size takes. `kv_memory` is in bytes, or text such as
    "2GiB"; None takes what `max_num_seqs` sequences of `max_seq_len` tokens need, at most a quarter of
    the machine's memory (on CUDA: of what is free, 85 %). `host_memory` is written likewise; None: none.
    Raises InvalidRequest for a setting out of range, ModelError where the pool cannot hold one sequence.
    """
    for name, value, low, high in (
        ("max_num_seqs", max_num_seqs, 1, 65_536),
        ("max_batched_tokens", max_batched_tokens, 1, 1_048_576),
        ("max_queued", max_queued, 0, 1_000_000),
        ("page_size", page_size, 1, 256),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidRequest(
                f"{name} must be a whole number from {low} to {high}, not {value!r}", field=name
            )
    if not isinstance(jump_forward, bool):
        raise InvalidRequest(
            f"jump_forward must be true or false, not {jump_forward!r}", field="jump_forward"
        )
    if schedule_policy not in get_args(SchedulePolicy):
        names = " or ".join(get_args(SchedulePolicy))
        raise InvalidRequest(
            f"schedule_policy must be {names}, not {schedule_policy!r}", field="schedule_policy"
        )
    limit = model.max_position_embeddings
    length = limit if max_seq_len is None else max_seq_len
    if isinstance(length, bool) or not isinstance(length, int) or not 2 <= length <= limit:
        raise InvalidRequest(
            f"max_seq_len must be from 2 to the model's {limit} positions, not {max_seq_len!r}",
            field="max_seq_len",
        )
    max_pages, bytes_each = -(-length // page_size), page_bytes(page_size)
    # One page more than the longest sequence needs: it may borrow the page it copies its start from.
    least, wanted = max_pages + 1, max_pages * max_num_seqs + 1
    if kv_memory is None:
        # Without a word on the length, a long-context model must not fail for want of memory.
        num_pages = min(wanted, _memory(device) // bytes_each)
        if num_pages < least and max_seq_len is None:
            least, length = num_pages, (num_pages - 1) * page_size
    else:
        num_pages = parse_bytes(kv_memory) // bytes_each
    if num_pages < max(least, 2):
        raise ModelError(
            f"the KV pool would hold {max(num_pages - 1, 0) * page_size} tokens, too few for one sequence of "
            f"max_seq_len={length}: set kv_memory to {least * bytes_each} bytes or more, or lower max_seq_len"
        )
    return EngineConfig(
        max_seq_len=length,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        max_queued=max_queued,
        num_pages=num_pages,
        page_size=page_size,
        enable_prefix_caching=enable_prefix_caching,
        schedule_policy="lpm" if schedule_policy == "lpm" else "fcfs",
        eviction=_eviction(eviction),
        num_host_pages=_host_pages(host_memory, bytes_each),
        jump_forward=jump_forward,
        seed=seed,
    )


def _eviction(name: str) -> Eviction:
    for policy in get_args(Eviction):
        if name == policy:
            found: Eviction = policy
            return found
    names = ", ".join(get_args(Eviction))
    raise InvalidRequest(f"eviction must be one of {names}, not {name!r}", field="eviction")


def _host_pages(memory: int | str | None, bytes_each: int) -> int:
    if memory is None:
        return 0
    wanted, total = parse_bytes(memory, field="host_memory"), _machine_memory()
    if not bytes_each <= wanted <= total:
        raise InvalidRequest(
            f"host_memory is {wanted} bytes: it must hold a page of {bytes_each} at least, "
            f"and the machine has {total}",
            field="host_memory",
        )
    return wanted // bytes_each


def parse_bytes(text: int | str, *, field: str = "kv_memory") -> int:
    """Bytes from a number or from text such as "512MiB" or "2GB". Raises InvalidRequest."""
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", str(text).strip().lower())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{field} must be bytes, or text such as 2GiB, not {text!r}", field=field)
    return int(float(found[1]) * UNITS[found[2] or ""])


def _memory(device: torch.device) -> int:
    """Bytes that the pool may take by default."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * CUDA_KV_SHARE)
    return int(_machine_memory() * CPU_KV_SHARE)


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
