"""Attention of every backend against float64 loops, over many steps of growing ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from treille.kernels import parallel
from treille.kernels.api import AttentionSpec, Kernels
from treille.kernels.cpu import CpuKernels

TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (3e-2, 3e-2)}

# (query heads, key/value heads, head_dim, page size, window, rotary width, normed)
SHAPES = [
    (3, 3, 8, 1, None, 8, False),
    (9, 3, 64, 16, None, 64, False),
    (9, 3, 64, 32, 20, 64, False),
    (4, 1, 16, 4, None, 4, False),
    (14, 2, 64, 16, None, 64, False),
    (7, 1, 80, 16, 5, 40, False),
    (4, 4, 96, 24, None, 96, True),
    (8, 2, 128, 16, None, 128, True),
    (2, 1, 256, 7, 33, None, False),
    (6, 2, 10, 3, None, 10, True),
    (130, 1, 8, 16, None, 8, False),
]


def _world(make_world: Callable[..., Any], kernels: Kernels, shape: tuple[Any, ...], **more: Any) -> Any:
    heads, kv_heads, head_dim, page_size, window, rotary, normed = shape
    spec = AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5, window=window)
    more = {"dtype": torch.float32, "num_pages": 2 + 400 // page_size, **more}
    return make_world(kernels=kernels, spec=spec, page_size=page_size, rotary=rotary, normed=normed, **more)


def _close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_of_prompts_chunks_and_single_tokens(
    make_world: Any, kernels: Kernels, shape: tuple[Any, ...], dtype: torch.dtype
) -> None:
    world = _world(make_world, kernels, shape, dtype=dtype, seed=len(str(shape)))
    outputs: dict[str, list[torch.Tensor]] = {"a": [], "b": [], "c": []}
    for counts in (
        {"a": 33},
        {"a": 1, "b": 5},
        {"b": 40, "c": 1, "a": 17},
        {"c": 1, "b": 1, "a": 1},
        {"c": 2},
    ):
        for name, rows in world.step(counts).items():
            outputs[name].append(rows)
    for name, parts in outputs.items():
        _close(torch.cat(parts), world.expected(name), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_contexts_of_several_spans(make_world: Any, kernels: Kernels, dtype: torch.dtype) -> None:
    world = _world(make_world, kernels, (6, 2, 16, 16, None, 16, False), dtype=dtype, num_pages=80)
    parts = [world.step({"a": 300})["a"], world.step({"a": 180})["a"], world.step({"a": 1, "b": 270})["a"]]
    _close(torch.cat(parts), world.expected("a"), dtype)


def test_scores_of_any_size(make_world: Any, kernels: Kernels) -> None:
    world = _world(make_world, kernels, (2, 1, 16, 16, None, None, False))
    world.spec = AttentionSpec(2, 1, 16, 40.0)
    _close(world.step({"a": 50})["a"], world.expected("a"), torch.float32)


def test_sequences_share_pages(make_world: Any, kernels: Kernels) -> None:
    world = _world(make_world, kernels, SHAPES[1])
    world.step({"a": 48})
    world.fork("a", "b")
    out = world.step({"a": 5, "b": 3})
    for name, rows in out.items():
        _close(rows, world.expected(name)[48:], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("page_size", [5, 16])
def test_a_page_forgets_its_former_owner(
    make_world: Any, kernels: Kernels, page_size: int, dtype: torch.dtype
) -> None:
    world = _world(make_world, kernels, (2, 1, 16, page_size, None, 16, False), dtype=dtype)
    world.step({"bad": 64}, poison=True)
    world.free += world.tables["bad"]  # taken from the end: the next sequence gets these
    out = [world.step({"a": count})["a"] for count in (7, 1, 1, 2)]
    _close(torch.cat(out), world.expected("a"), dtype)


def test_copied_pages_hold_the_same(make_world: Any, kernels: Kernels) -> None:
    world = _world(make_world, kernels, SHAPES[1])
    world.step({"a": 40})
    pages = world.tables["a"]
    copies = [world.free.pop() for _ in pages]
    kernels.copy_pages(world.kv, list(zip(pages, copies, strict=True)))
    kernels.copy_pages(world.kv, [])
    world.given["b"], world.tables["b"] = world.given["a"], copies
    world.step({"a": 3})  # writes to the original's last page only
    _close(world.step({"b": 2})["b"], world.expected("b")[40:], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2], SHAPES[4], SHAPES[5]], ids=str)
def test_cpu_results_do_not_depend_on_chunks_or_neighbours(
    make_world: Any, cpu_kernels: CpuKernels, shape: tuple[Any, ...], dtype: torch.dtype
) -> None:
    world = _world(make_world, cpu_kernels, shape, dtype=dtype, num_pages=80)
    whole = world.step({"a": 200})["a"]
    rows = world.given.pop("a")
    world.free += world.tables.pop("a")
    parts, done = [], 0
    for count in (1, 30, 2, 100, 66, 1):
        world.given["a"] = rows[: done + count]
        done += count
        world.given["b"] = world.draw(done, world.spec.qkv_width).to(dtype)
        world.tables["b"] = [world.num_pages - 1] * 64
        qkv = {"a": world.given["a"][-count:], "b": world.given["b"][-1:]}
        parts.append(world.run(qkv)[:count])
    assert torch.equal(torch.cat(parts), whole)


def test_threads_with_caches_of_their_own(make_world: Any, cpu_kernels: CpuKernels) -> None:
    def work(seed: int) -> list[torch.Tensor]:
        world = _world(make_world, cpu_kernels, SHAPES[1], seed=seed, dtype=torch.bfloat16)
        return [world.step({"a": count, "b": 2})["a"] for count in (40, 1, 1, 30, 1, 1)]

    alone = [work(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(work, range(3)))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_without_openmp(make_world: Any, cpu_kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _world(make_world, cpu_kernels, SHAPES[1]).step({"a": 150, "b": 60})
    monkeypatch.setattr(parallel, "_openmp_library", lambda: None)
    out = _world(make_world, CpuKernels(), SHAPES[1]).step({"a": 150, "b": 60})
    assert all(torch.equal(out[name], expected[name]) for name in expected)


def test_machine_code_is_cached(cpu_kernels: CpuKernels) -> None:
    cpu_kernels.warm_up(torch.float32)
    again = CpuKernels()
    again.warm_up(torch.float32)
    assert again.loaded_from_cache(torch.float32)
