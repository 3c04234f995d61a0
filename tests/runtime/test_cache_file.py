"""What a restart warms from: a saved cache changes how much is computed and no answer, or it is not used."""

from __future__ import annotations

import json
import logging
import os
import random
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.history_model import GREEDY, HistoryModel, byte_tokenizer, idle, random_prompts
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from treille.runtime.engine import Engine
from treille.runtime.errors import CacheFileError, EngineClosed, InvalidRequest, ModelError
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.types import Finished, Request

PAGE = 4
PROMPTS = random_prompts(8, 30, 40, shared=10)
UNUSED = "is not used"


class Place:
    """A folder with a model's file and a cache file; engines on both."""

    def __init__(self, folder: Path) -> None:
        self.weights = folder / "weights"
        self.weights.write_bytes(bytes(range(256)) * 10)
        self.file = folder / "prefixes.safetensors"

    def engine(self, **settings: Any) -> Engine:
        model = HistoryModel()
        loaded = LoadedModel(
            "history", model.config, model, byte_tokenizer(), None, weight_files=(self.weights,)
        )
        fixed = {"max_seq_len": 64, "page_size": PAGE, "kv_memory": 2**18, "cache_file": self.file}
        return Engine(loaded, **(fixed | settings))

    def fill(self, **settings: Any) -> None:
        """Leave a file with the prompts and their answers."""
        with self.engine(**settings) as engine:
            for prompt in PROMPTS:
                ask(engine, prompt)

    def tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        with safe_open(self.file, framework="pt") as file:
            return load_file(self.file), dict(file.metadata())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ask(engine: Engine, prompt: tuple[int, ...], salt: str | None = None) -> int:
    """How many tokens were cached; the answer is right."""
    *_, end = engine.submit(Request(prompt_ids=prompt, params=GREEDY, cache_salt=salt))
    assert isinstance(end, Finished)
    assert list(end.completions[0].token_ids) == HistoryModel().greedy(prompt, 12, stop_at_eos=False)
    engine._core.scheduler.check()
    return end.usage.cached_tokens


def test_a_restart_goes_on_where_the_last_one_ended(place: Place, caplog: Any) -> None:
    place.fill()
    with place.engine() as engine:
        assert idle(engine)
        assert engine.stats()["cached_pages"] > 0
        # All but the last token, whose logits are wanted: of the last page too.
        assert [ask(engine, prompt) for prompt in PROMPTS] == [len(prompt) - 1 for prompt in PROMPTS]
        assert engine.stats()["cached_tokens"] == sum(len(prompt) - 1 for prompt in PROMPTS)
    with place.engine() as engine:  # what was warmed is saved again
        assert [ask(engine, prompt) for prompt in PROMPTS] == [len(prompt) - 1 for prompt in PROMPTS]
    assert not caplog.records


def test_without_a_file_it_starts_cold_and_says_nothing(place: Place, caplog: Any) -> None:
    with place.engine() as engine:
        assert ask(engine, PROMPTS[0]) == 0
    assert place.file.exists() and not caplog.records


def test_an_emptied_cache_does_not_come_back(place: Place) -> None:
    place.fill()
    with place.engine() as engine:
        engine.flush_cache()
    with place.engine() as engine:
        assert engine.stats()["cached_pages"] == 0
        assert ask(engine, PROMPTS[0]) == 0


def test_it_can_be_saved_while_it_runs(place: Place) -> None:
    with place.engine() as engine, place.engine() as other:
        ask(engine, PROMPTS[0])
        with engine.cache(PROMPTS[1]):
            saved = engine.save_cache()
        assert saved == engine.stats()["cached_pages"] > 0
        with place.engine(cache_file=place.file) as third:
            assert ask(third, PROMPTS[0]) == len(PROMPTS[0]) - 1
            assert ask(third, PROMPTS[1]) == len(PROMPTS[1]) - 1
        assert ask(other, PROMPTS[0]) == 0  # it had started before


def test_paths_in_use_are_saved(place: Place) -> None:
    """In the middle of a long answer: the pages that have filled."""
    with place.engine() as engine:
        stream = engine.submit(
            Request(
                prompt_ids=PROMPTS[0], params=SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
            )
        )
        next(iter(stream))
        assert engine.save_cache() >= len(PROMPTS[0]) // PAGE
        with place.engine(cache_file=place.file) as other:
            assert ask(other, PROMPTS[0]) >= len(PROMPTS[0]) // PAGE * PAGE - 1


def test_salted_prefixes_are_not_saved(place: Place) -> None:
    with place.engine() as engine:
        ask(engine, PROMPTS[0], "secret-salt")
        ask(engine, PROMPTS[1])
    assert b"secret-salt" not in place.file.read_bytes()
    tensors, _ = place.tensors()
    assert tuple(tensors["tokens"].tolist())[: len(PROMPTS[1])] == PROMPTS[1]
    with place.engine() as engine:
        for salt in ("secret-salt", None):
            assert ask(engine, PROMPTS[0], salt) <= 10  # what all prompts begin with
        assert ask(engine, PROMPTS[1]) == len(PROMPTS[1]) - 1


def test_a_small_pool_takes_what_was_used_last(place: Place) -> None:
    place.fill()
    with place.engine(kv_memory=17 * PAGE * 64) as engine:
        assert engine.stats()["cached_pages"] == 17
        assert idle(engine)
        engine._core.cache.check()
        assert ask(engine, PROMPTS[-1]) == len(PROMPTS[-1]) - 1
        assert ask(engine, PROMPTS[0]) <= 10


def test_only_its_user_may_read_it(place: Place) -> None:
    place.fill()
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
    assert sorted(path.name for path in place.file.parent.iterdir()) == ["prefixes.safetensors", "weights"]


class TestNotUsed:
    """Never an exception, always a reason, and the answers are right all the same."""

    def refused(self, place: Place, caplog: Any, reason: str, **settings: Any) -> None:
        caplog.clear()
        with caplog.at_level(logging.WARNING), place.engine(**settings) as engine:
            assert engine.stats()["cached_pages"] == 0
            assert ask(engine, PROMPTS[0]) == 0
        (record,) = caplog.records
        assert UNUSED in record.getMessage() and reason in record.getMessage()

    def test_other_weights(self, place: Place, caplog: Any) -> None:
        place.fill()
        weights = bytearray(place.weights.read_bytes())
        weights[1234] ^= 1
        place.weights.write_bytes(weights)
        self.refused(place, caplog, "its model is")
        # It was replaced by one that fits.
        with place.engine() as engine:
            assert ask(engine, PROMPTS[0]) == len(PROMPTS[0]) - 1

    def test_another_page_size(self, place: Place, caplog: Any) -> None:
        place.fill()
        self.refused(place, caplog, "its page_size is 4, and here it is 8", page_size=8)

    @pytest.mark.parametrize("name", ["format", "versions", "model", "dtype", "page_size", "layout"])
    def test_whatever_it_depends_on(self, place: Place, caplog: Any, name: str) -> None:
        place.fill()
        tensors, metadata = place.tensors()
        save_file(tensors, place.file, metadata | {name: "9"})
        self.refused(place, caplog, f"its {name} is 9, and here it is")
        save_file(tensors, place.file, {key: value for key, value in metadata.items() if key != name})
        self.refused(place, caplog, f"its {name} is None")

    @pytest.mark.parametrize("kept", [0, 1, 7, 8, 100, -1])
    def test_a_truncated_file(self, place: Place, caplog: Any, kept: int) -> None:
        place.fill()
        place.file.write_bytes(place.file.read_bytes()[:kept])
        self.refused(place, caplog, "it cannot be read")

    def test_what_is_no_such_file(self, place: Place, caplog: Any) -> None:
        for content in (b"x" * 1000, b"\xff" * 8 + b"{}", (2).to_bytes(8, "little") + b"{}"):
            place.file.write_bytes(content)
            self.refused(place, caplog, "")
        save_file({"model.norm.weight": torch.zeros(3)}, place.file)
        self.refused(place, caplog, "its format is None")

    def test_a_flipped_bit(self, place: Place, caplog: Any) -> None:
        """Anywhere: of the header's padding alone it can go unseen, and then nothing else is wrong."""
        place.fill()
        whole = place.file.read_bytes()
        rng = random.Random(0)
        num_refused = 0
        for at in [rng.randrange(len(whole)) for _ in range(20)] + [rng.randrange(900) for _ in range(20)]:
            changed = bytearray(whole)
            changed[at] ^= 1 << rng.randrange(8)
            place.file.write_bytes(changed)
            caplog.clear()
            with caplog.at_level(logging.WARNING), place.engine() as engine:
                num_refused += sum(UNUSED in record.getMessage() for record in caplog.records)
                assert all(ask(engine, prompt) >= 0 for prompt in PROMPTS[:2])
        assert num_refused >= 35

    def test_trees_that_are_none(self, place: Place, caplog: Any) -> None:
        """With digests that fit: the file was made so."""
        place.fill()
        tensors, metadata = place.tensors()
        edges = tensors["edges"]

        def with_edge(row: int, column: int, value: int) -> torch.Tensor:
            changed = edges.clone()
            changed[row, column] = value
            return changed

        # A child of what is not full, or of what comes later, or of itself, or none; lengths out of range.
        tail = next(i for i, (_, length) in enumerate(edges.tolist()) if length % PAGE)
        wrong = [
            {"edges": with_edge(-1, 0, tail + 1)} if tail + 1 < len(edges) else {"edges": edges[:-1]},
            {"edges": with_edge(0, 0, len(edges))},
            {"edges": with_edge(0, 0, 1)},
            {"edges": with_edge(0, 0, -1)},
            {"edges": with_edge(0, 1, 0)},
            {"edges": with_edge(0, 1, -4)},
            {"edges": with_edge(0, 1, 2**62)},
            {"edges": edges[:-1]},
            {"edges": edges.float()},
            {"edges": edges[:, 0].contiguous()},
            {"tokens": tensors["tokens"] + 10_000},
            {"tokens": tensors["tokens"] - 256},
            {"tokens": tensors["tokens"].float()},
            {"pages.0": tensors["pages.0"][:-1]},
            {"pages.0": tensors["pages.0"].double()},
            {"pages.0": tensors["pages.0"][:, :-1].contiguous()},
        ]
        for change in wrong:
            self.write(place, tensors | change, metadata)
            self.refused(place, caplog, "")
        for name in tensors:
            self.write(place, {key: value for key, value in tensors.items() if key != name}, metadata)
            self.refused(place, caplog, "it is damaged")
        self.write(place, tensors, metadata)
        with place.engine() as engine:  # the way of changing it is sound
            assert ask(engine, PROMPTS[0]) > 0

    def write(self, place: Place, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        digests = {
            name: sha256(one.contiguous().numpy().tobytes()).hexdigest() for name, one in tensors.items()
        }
        save_file(tensors, place.file, metadata | {"sha256": json.dumps(digests)})


class TestSettings:
    @pytest.mark.parametrize("path", ["", 3, "/no/such/folder/file", "."])
    def test_no_such_place(self, place: Place, path: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            place.engine(cache_file=path)
        assert caught.value.field == "cache_file"

    def test_without_a_cache(self, place: Place) -> None:
        with pytest.raises(InvalidRequest, match="enable_prefix_caching"):
            place.engine(enable_prefix_caching=False)

    def test_a_model_that_came_from_no_file(self, make_engine: Any, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="not loaded from files"):
            make_engine(cache_file=tmp_path / "file")

    def test_saving_without_a_file(self, make_engine: Any) -> None:
        engine, _ = make_engine()
        with pytest.raises(InvalidRequest, match="save_cache needs cache_file"):
            engine.save_cache()

    def test_a_closed_engine_saves_nothing(self, place: Place) -> None:
        engine = place.engine()
        engine.close()
        with pytest.raises(EngineClosed):
            engine.save_cache()

    def test_a_folder_that_went_away(self, place: Place, tmp_path: Path, caplog: Any) -> None:
        folder = tmp_path / "inner"
        folder.mkdir()
        engine = place.engine(cache_file=folder / "file")
        ask(engine, PROMPTS[0])
        folder.rmdir()
        with pytest.raises(CacheFileError, match="cannot be written"):
            engine.save_cache()
        assert ask(engine, PROMPTS[0]) > 0
        engine.close()
        assert "not kept" in caplog.text

    def test_the_programs_folder_may_change(self, place: Place, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        engine = place.engine(cache_file="here")
        (tmp_path / "there").mkdir()
        os.chdir(tmp_path / "there")
        engine.close()
        assert (tmp_path / "here").exists()

    def test_after_a_fault_of_the_loop_nothing_is_written(self, place: Place) -> None:
        place.fill()
        before = place.file.read_bytes()
        engine = place.engine()
        engine._post(lambda: 1 / 0)
        engine._thread.join()
        engine.close()
        assert place.file.read_bytes() == before


def test_a_real_model_says_the_same(tmp_path: Path, tiny_llama: Callable[[Path], Path], caplog: Any) -> None:
    """A tiny random Llama: cold, warm, in another precision, and with another seed's weights."""
    for seed in range(2):
        torch.manual_seed(seed)
        tiny_llama(tmp_path / str(seed))
    rng = random.Random(1)
    prompts = [[rng.randrange(49_000) for _ in range(60)] for _ in range(4)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    file = tmp_path / "prefixes"

    def answers(seed: int = 0, dtype: str = "float32", **settings: Any) -> tuple[list[Any], float]:
        with Engine(
            tmp_path / str(seed),
            dtype=dtype,
            device="cpu",
            max_seq_len=80,
            page_size=4,
            cache_file=file,
            **settings,
        ) as engine:
            return [engine.generate([prompt], params)[0] for prompt in prompts], engine.stats()[
                "cached_tokens"
            ]

    cold, num_cached = answers()
    assert num_cached == 0
    warm, num_cached = answers()
    assert num_cached == 4 * 59
    for one, two in zip(cold, warm, strict=True):
        assert one.token_ids == two.token_ids
        assert [each.logprob for each in one.logprobs] == pytest.approx(
            [each.logprob for each in two.logprobs]
        )
    assert not caplog.records
    for changed, reason in (
        ({"dtype": "bfloat16"}, "its dtype is float32, and here it is bfloat16"),
        ({"dtype": "int8"}, "its model is"),
        ({"seed": 1}, "its model is"),
        ({"deterministic": True}, "its model is"),
    ):
        caplog.clear()
        assert answers(**changed)[1] == 0
        assert reason in caplog.text
