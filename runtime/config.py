"""`EngineConfig`: the engine's settings, resolved against model and machine once, then frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from treille.radix.order import Eviction
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.memory import available_memory, pool_bytes, shown
from treille.runtime.models.config import ModelConfig
from treille.runtime.waiting import SchedulePolicy

# Share of the available memory that the KV pool may take when nobody says how much.
KV_SHARES = {"cpu": 0.5, "cuda": 0.85}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine. Lengths and sizes count tokens, except `num_pages`.

    `reserve_kv`: the pool's memory is taken when it is made, not page by page when it is first used.
    `is_pool_bound`: what limits `max_seq_len` is the pool, not the model or the caller.
    """

    max_seq_len: int
    max_num_seqs: int
    max_batched_tokens: int
    max_queued: int
    num_pages: int
    reserve_kv: bool
    is_pool_bound: bool
    page_size: int
    enable_prefix_caching: bool
    schedule_policy: SchedulePolicy
    eviction: Eviction
    num_host_pages: int
    cache_file: Path | None
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
    device: str,
    available: int,
    max_seq_len: int | None,
    max_num_seqs: int,
    max_batched_tokens: int,
    max_queued: int,
    kv_memory: int | float | str | None,
    page_size: int,
    enable_prefix_caching: bool,
    schedule_policy: str,
    eviction: str,
    host_memory: int | str | None,
    cache_file: str | Path | None,
    jump_forward: bool,
    seed: int,
) -> EngineConfig:
    """Check the settings and work out the pool's size.

    `page_bytes` tells what one page of a given size takes; `device` is "cpu" or "cuda", `available` its
    memory in bytes that is left beside the weights. `kv_memory` is bytes or a share of that (`pool_bytes`),
    and is reserved; None takes what `max_num_seqs` sequences of `max_seq_len` tokens need, at most half of
    what is available (on CUDA 85 %), and on the CPU each page only when it is first used. Where nobody says
    what `max_seq_len` is, a pool too small for the model's context limits it. `host_memory` is bytes or text;
    None: none. `cache_file` may be missing, its folder may not.
    Raises InvalidRequest for a setting out of range, ModelError where the pool cannot hold one sequence or
    is larger than the memory.
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
    policies: tuple[SchedulePolicy, ...] = get_args(SchedulePolicy)
    policy = next((name for name in policies if name == schedule_policy), None)
    if policy is None:
        raise InvalidRequest(
            f"schedule_policy must be {' or '.join(policies)}, not {schedule_policy!r}",
            field="schedule_policy",
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
        num_pages = min(wanted, int(available * KV_SHARES[device]) // bytes_each)
    else:
        num_bytes = pool_bytes(kv_memory, available)
        num_pages = num_bytes // bytes_each
        if num_bytes > available:
            raise ModelError(
                f"kv_memory asks for {shown(num_bytes)} and {shown(available)} are available beside the "
                f"weights: lower it, or give a share of what is available, such as 0.5"
            )
    is_pool_bound = max_seq_len is None and num_pages < least
    if is_pool_bound:
        # Without a word on the length, a long-context model must not fail for want of memory.
        least, length = num_pages, (num_pages - 1) * page_size
    if num_pages < max(least, 2) or length < 2:
        raise ModelError(
            f"the KV pool would hold {max(num_pages - 1, 0) * page_size} tokens, too few for one sequence of "
            f"max_seq_len={length}: set kv_memory to {max(least, 2) * bytes_each} bytes or more, or lower "
            f"max_seq_len ({shown(available)} are available)"
        )
    return EngineConfig(
        max_seq_len=length,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        max_queued=max_queued,
        num_pages=num_pages,
        reserve_kv=kv_memory is not None,
        is_pool_bound=is_pool_bound,
        page_size=page_size,
        enable_prefix_caching=enable_prefix_caching,
        schedule_policy=policy,
        eviction=_eviction(eviction),
        num_host_pages=_host_pages(host_memory, bytes_each),
        cache_file=_cache_file(cache_file, enable_prefix_caching=enable_prefix_caching),
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


def _host_pages(memory: int | float | str | None, bytes_each: int) -> int:
    if memory is None:
        return 0
    available = available_memory(torch.device("cpu"))
    wanted = pool_bytes(memory, available, field="host_memory")
    if not bytes_each <= wanted <= available:
        raise InvalidRequest(
            f"host_memory is {wanted} bytes: it must hold a page of {bytes_each} at least, "
            f"and {available} are available",
            field="host_memory",
        )
    return wanted // bytes_each


def _cache_file(path: str | Path | None, *, enable_prefix_caching: bool) -> Path | None:
    if path is None:
        return None
    if not isinstance(path, str | Path) or not str(path):
        raise InvalidRequest(f"cache_file must be the path of a file, not {path!r}", field="cache_file")
    if not enable_prefix_caching:
        raise InvalidRequest("cache_file needs enable_prefix_caching: nothing is kept", field="cache_file")
    # Absolute: the program may change its folder before the engine is closed.
    found = Path(path).expanduser().absolute()
    if found.is_dir() or not found.parent.is_dir():
        raise InvalidRequest(
            f"cache_file must be a file in a folder that exists, not {path}", field="cache_file"
        )
    return found
