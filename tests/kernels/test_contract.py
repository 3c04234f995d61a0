"""What the backends refuse, and the sizes they promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from treille.kernels.api import AttentionSpec, Kernels
from treille.kernels.cpu import CpuKernels
from treille.kernels.reference import ReferenceKernels
from treille.kernels.select import select_kernels

CPU = torch.device("cpu")
CACHE: dict[str, Any] = {
    "num_layers": 3,
    "num_pages": 4,
    "page_size": 16,
    "num_kv_heads": 2,
    "head_dim": 24,
    "dtype": torch.bfloat16,
}


def test_select_kernels() -> None:
    assert isinstance(select_kernels(CPU), CpuKernels)
    assert select_kernels(CPU) is select_kernels(torch.device("cpu", 0))
    assert isinstance(select_kernels(torch.device("cuda")), ReferenceKernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("page_size", [1, 16, 20])
def test_page_bytes_is_what_is_allocated(kernels: Kernels, page_size: int, dtype: torch.dtype) -> None:
    wanted = {**CACHE, "page_size": page_size, "dtype": dtype}
    kv = kernels.allocate_kv(**wanted, device=CPU)
    size = sum(tensor.nbytes for tensor in kv.keys + kv.values)
    del wanted["num_pages"]
    assert kernels.page_bytes(**wanted) * kv.num_pages == size
    assert kv.num_layers == 3 and kv.dtype == dtype and kv.device == CPU
    assert not any(tensor.any() for tensor in kv.keys + kv.values)


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": 0},
        {"num_pages": 0},
        {"page_size": 0},
        {"page_size": 257},
        {"num_kv_heads": 0},
        {"head_dim": 7},
        {"head_dim": 258},
        {"dtype": torch.float16},
    ],
    ids=str,
)
def test_allocate_refuses(kernels: Kernels, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        kernels.allocate_kv(**{**CACHE, **change}, device=CPU)


def test_cpu_cache_stays_on_the_cpu(cpu_kernels: CpuKernels) -> None:
    with pytest.raises(ValueError):
        cpu_kernels.allocate_kv(**CACHE, device=torch.device("meta"))


@pytest.mark.parametrize(
    "pairs", [[(0, 4)], [(-1, 0)], [(0, 1), (2, 1)], [(0, 1), (1, 2)], [(1, 1)]], ids=str
)
def test_copy_pages_refuses(kernels: Kernels, pairs: list[tuple[int, int]]) -> None:
    kv = kernels.allocate_kv(**CACHE, device=CPU)
    with pytest.raises(ValueError):
        kernels.copy_pages(kv, pairs)


@pytest.mark.parametrize(
    "arguments",
    [(3, 2, 8, 1.0), (0, 1, 8, 1.0), (2, 0, 8, 1.0), (2, 2, 7, 1.0), (2, 2, 8, 0.0), (2, 2, 8, 1.0, 0)],
    ids=str,
)
def test_spec_refuses(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        AttentionSpec(*arguments)


def test_rows_refuse(kernels: Kernels) -> None:
    x, weight = torch.randn(4, 16), torch.rand(16)
    for bad in (x.half(), x.t()[:, :4].t().t(), x[:, :8]):
        with pytest.raises(ValueError):
            kernels.rms_norm(bad, weight[: bad.shape[-1] - 1] if bad.shape[-1] == 8 else weight, 1e-5)
    for other in (x[:2], x.bfloat16(), x.t()):
        with pytest.raises(ValueError):
            kernels.add_rms_norm(x, other, weight, 1e-5)
    for bad in (torch.randn(4, 7), x.half(), x.t()):
        with pytest.raises(ValueError):
            kernels.silu_mul(bad)


@pytest.fixture
def world(make_world: Any, kernels: Kernels) -> Any:
    world = make_world(
        kernels=kernels,
        spec=AttentionSpec(4, 2, 16, 0.25),
        dtype=torch.float32,
        page_size=4,
        num_pages=10,
        rotary=16,
    )
    world.step({"a": 6, "b": 3})
    return world


ATTENTION_FAULTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "layer": lambda w: {"layer": 2},
    "negative layer": lambda w: {"layer": -1},
    "qkv dtype": lambda w: {"qkv": torch.zeros(9, 128).bfloat16()},
    "qkv width": lambda w: {"qkv": torch.zeros(9, 127)},
    "qkv rows": lambda w: {"qkv": torch.zeros(8, 128)},
    "qkv device": lambda w: {"qkv": torch.zeros(9, 128, device="meta")},
    "qkv strides": lambda w: {"qkv": torch.zeros(128, 9).t()},
    "other heads": lambda w: {"spec": AttentionSpec(6, 1, 16, 0.25)},
    "table dtype": lambda w: {"cos_sin": w.cos_sin.double()},
    "table odd": lambda w: {"cos_sin": torch.zeros(512, 15)},
    "table wide": lambda w: {"cos_sin": torch.zeros(512, 18)},
    "one norm": lambda w: {"q_norm": torch.ones(16)},
    "norm width": lambda w: {"q_norm": torch.ones(16), "k_norm": torch.ones(8)},
    "norm dtype": lambda w: {"q_norm": torch.ones(16).double(), "k_norm": torch.ones(16)},
}


@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
def test_attention_refuses(world: Any, fault: str) -> None:
    arguments = {
        "layer": 0,
        "qkv": torch.zeros(9, 128),
        "kv": world.kv,
        "ragged": world.ragged({"a": 6, "b": 3}),
        "spec": world.spec,
        "cos_sin": world.cos_sin,
    }
    world.kernels.attention(**arguments)
    with pytest.raises(ValueError):
        world.kernels.attention(**{**arguments, **ATTENTION_FAULTS[fault](world)})


def test_attention_refuses_the_cache_of_another_backend(world: Any) -> None:
    other = ReferenceKernels() if world.kernels.name == "cpu" else select_kernels(CPU)
    with pytest.raises(ValueError, match="another backend"):
        other.attention(
            0, torch.zeros(9, 128), world.kv, world.ragged({"a": 6, "b": 3}), world.spec, cos_sin=None
        )


def test_cpu_refuses_other_devices(cpu_kernels: CpuKernels) -> None:
    x = torch.zeros(2, 16, device="meta")
    with pytest.raises(ValueError):
        cpu_kernels.rms_norm(x, torch.zeros(16, device="meta"), 1e-5)
    with pytest.raises(ValueError):
        cpu_kernels.silu_mul(x)


RAGGED_FAULTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "starts do not span": lambda r: {"query_start": torch.tensor([0, 6, 8], dtype=torch.int32)},
    "starts late": lambda r: {"query_start": torch.tensor([1, 6, 9], dtype=torch.int32)},
    "empty sequence": lambda r: {"query_start": torch.tensor([0, 9, 9], dtype=torch.int32)},
    "starts dtype": lambda r: {"query_start": r.query_start.long()},
    "starts length": lambda r: {"query_start": r.query_start[:2]},
    "context too short": lambda r: {"context_lens": torch.tensor([5, 3], dtype=torch.int32)},
    "context beyond the table": lambda r: {"context_lens": torch.tensor([6, 99], dtype=torch.int32)},
    "contexts of two dimensions": lambda r: {"context_lens": r.context_lens[None]},
    "page out of range": lambda r: {"page_table": r.page_table + 10},
    "page negative": lambda r: {"page_table": r.page_table - 10},
    "table rows": lambda r: {"page_table": r.page_table[:1]},
    "table strides": lambda r: {"page_table": r.page_table.t().contiguous().t()},
    "slot elsewhere": lambda r: {"slots": r.slots.flip(0)},
    "slots length": lambda r: {"slots": r.slots[:-1]},
    "slots dtype": lambda r: {"slots": r.slots.int()},
    "position out of range": lambda r: {"positions": r.positions + 512},
    "position negative": lambda r: {"positions": r.positions - 1},
    "one slot twice": lambda r: {
        "page_table": r.page_table[:1].repeat(2, 1),
        "slots": torch.cat([r.slots[:6], r.slots[:3]]),
    },
}


@pytest.mark.parametrize("fault", RAGGED_FAULTS)
def test_ragged_check_refuses(world: Any, fault: str) -> None:
    ragged = world.ragged({"a": 6, "b": 3})
    ragged.check(world.kv, max_positions=512)
    with pytest.raises(ValueError):
        replace(ragged, **RAGGED_FAULTS[fault](ragged)).check(world.kv, max_positions=512)
