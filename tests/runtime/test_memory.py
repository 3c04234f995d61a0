"""How much memory there is, from files that the tests write, and what the KV pool makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from treille.runtime.config import EngineConfig, resolve_config
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.memory import available_memory, pool_bytes, shown
from treille.runtime.params import SamplingParams

CPU = torch.device("cpu")
GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., int]:
    """What is available on a machine with 8 GiB available and these files besides."""

    def make(files: dict[str, str]) -> int:
        for name, text in {"proc/meminfo": "MemTotal: 1 kB\nMemAvailable:  8388608 kB\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return available_memory(CPU, root=tmp_path)

    return make


def test_this_machine_has_some() -> None:
    assert 2**20 < available_memory(CPU) < 2**50


def test_without_groups_it_is_what_the_kernel_says(machine: Callable[..., int]) -> None:
    assert machine({}) == 8 * GIB


def test_version_2(machine: Callable[..., int]) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": f"{GIB}\n",
        "sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/a/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB // 2}\nactive_file 7\n",
    }
    assert machine(files) == GIB + GIB // 2


def test_version_2_in_a_container(machine: Callable[..., int]) -> None:
    files = {
        "proc/self/cgroup": "0::/../outside\n",
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{GIB}\n",
    }
    assert machine(files) == GIB


def test_version_1(machine: Callable[..., int]) -> None:
    files = {
        "proc/self/cgroup": "12:cpu,cpuacct:/x\n4:memory:/x/y\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory/x/y/memory.usage_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/x/y/memory.stat": f"inactive_file 9\ntotal_inactive_file {GIB // 4}\n",
    }
    assert machine(files) == GIB + GIB // 4


def test_a_group_over_its_limit_has_nothing_left(machine: Callable[..., int]) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "1000\n",
        "sys/fs/cgroup/memory.current": "5000\n",
    }
    assert machine(files) == 0


@pytest.mark.parametrize("text", ["", "what\n", "-5\n"])
def test_files_that_say_nothing_are_passed_over(machine: Callable[..., int], text: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": text}
    assert machine(files) == 8 * GIB


def test_a_system_without_such_files_has_all_its_memory(tmp_path: Path) -> None:
    assert available_memory(CPU, root=tmp_path) > 2**20


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (5, 5),
        (2**40, 2**40),
        (0.25, 250),
        ("25%", 250),
        ("12.5 %", 125),
        ("0.25", 250),
        ("1", 1),
        ("512", 512),
        ("2GiB", 2 * GIB),
        ("1.5 mb", 1_500_000),
        ("3K", 3000),
        ("7B", 7),
    ],
)
def test_settings(setting: float | str, expected: int) -> None:
    assert pool_bytes(setting, 1000) == expected


@pytest.mark.parametrize(
    "setting",
    [0, -1, 0.0, 1.0, 1.5, -0.5, True, "", "lots", "0", "0%", "100%", "200%", "-5%", "0.5GiB%", "nan", None],
)
def test_settings_that_mean_nothing(setting: Any) -> None:
    with pytest.raises(InvalidRequest, match="kv_memory must be bytes, a share") as caught:
        pool_bytes(setting, 1000)
    assert caught.value.field == "kv_memory"


def test_bytes_for_people() -> None:
    assert [shown(n) for n in (7, 1536, 5 * 2**20, 3 * GIB // 2)] == [
        "7 bytes",
        "1.5 KiB",
        "5 MiB",
        "1.5 GiB",
    ]


def resolve(history_model: Any, **changes: Any) -> EngineConfig:
    settings = {
        "page_bytes": lambda size: 10 * size,
        "device": "cpu",
        "available": 10_000,
        "max_seq_len": None,
        "max_num_seqs": 2,
        "max_batched_tokens": 64,
        "max_queued": 1,
        "kv_memory": None,
        "page_size": 4,
        "enable_prefix_caching": True,
        "schedule_policy": "lpm",
        "eviction": "lru",
        "host_memory": None,
        "cache_file": None,
        "jump_forward": True,
        "seed": 0,
    }
    return resolve_config(history_model.config, **(settings | changes))


def test_a_share_is_of_what_is_available(history_model: Any) -> None:
    config = resolve(history_model, kv_memory=0.4, max_seq_len=64)
    assert config.num_pages == 100 and config.reserve_kv and not config.is_pool_bound


def test_more_than_there_is_is_refused_with_both_numbers(history_model: Any) -> None:
    with pytest.raises(ModelError, match=r"asks for 9\.766 KiB and 9\.765 KiB are available"):
        resolve(history_model, kv_memory=10_000, available=9_999, max_seq_len=64)


def test_by_default_half_is_the_most_and_nothing_is_reserved(history_model: Any) -> None:
    config = resolve(history_model, max_seq_len=64, max_num_seqs=1000)
    assert config.num_pages == 125 and not config.reserve_kv
    assert resolve(history_model, max_seq_len=64).num_pages == 33


@pytest.mark.parametrize("kv_memory", [None, 800])
def test_a_small_pool_limits_the_length_unless_that_was_asked_for(
    history_model: Any, kv_memory: int | None
) -> None:
    config = resolve(history_model, kv_memory=kv_memory, available=1600)
    assert config.num_pages == 20 and config.max_seq_len == 19 * 4 and config.is_pool_bound
    with pytest.raises(ModelError, match=r"hold 76 tokens.*max_seq_len=128.*1320 bytes or more.*1\.562 KiB"):
        resolve(history_model, kv_memory=kv_memory, available=1600, max_seq_len=128)


def test_a_request_that_can_never_fit_is_refused_at_once_with_numbers(make_engine: Any) -> None:
    engine, _ = make_engine(max_seq_len=None, kv_memory=20 * 4 * 64)
    held = engine.max_seq_len
    assert engine.config.is_pool_bound
    with pytest.raises(
        InvalidRequest, match=f"has {held} tokens and the KV pool holds {held},.*raise kv_memory"
    ):
        engine.generate([[7] * held], SamplingParams(max_tokens=1))
    (done,) = engine.generate([[7] * (held - 1)], SamplingParams(max_tokens=1, temperature=0))
    assert len(done.token_ids) == 1
    other, _ = make_engine(max_seq_len=64)
    with pytest.raises(InvalidRequest, match=r"the context holds 64, output included.*raise max_seq_len"):
        other.generate([[7] * 64], SamplingParams(max_tokens=1))


def test_a_full_pool_runs_every_request_to_its_end(make_engine: Any) -> None:
    engine, _ = make_engine(max_seq_len=64, kv_memory=20 * 4 * 64)
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    alone = [engine.generate([[i + 1] * 12], params)[0].token_ids for i in range(12)]
    together = engine.generate([[i + 1] * 12 for i in range(12)], params)
    assert [done.token_ids for done in together] == alone
