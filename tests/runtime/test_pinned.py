"""`Engine.cache`: prefixes that stay."""

from __future__ import annotations

import threading

import pytest
from oracles.history_model import GREEDY, idle, random_prompts

from treille.radix import PageError
from treille.runtime.engine import Engine
from treille.runtime.errors import CacheFull, EngineClosed, InvalidRequest
from treille.runtime.types import Finished, Request

SMALL = {"kv_memory": 40 * 4 * 64, "max_seq_len": 64}
PREFIX, *OTHERS = random_prompts(12, 30, 31)


def cached(engine: Engine, prompt: tuple[int, ...], salt: str | None = None) -> int:
    *_, end = engine.submit(Request(prompt_ids=prompt, params=GREEDY, cache_salt=salt))
    assert isinstance(end, Finished)
    return end.usage.cached_tokens


def press(engine: Engine) -> None:
    """Fill the cache with other things."""
    engine.generate(OTHERS, GREEDY)
    engine._core.scheduler.check()


@pytest.mark.parametrize("was_cached", [False, True])
@pytest.mark.parametrize("salt", [None, "A"])
def test_a_cached_prefix_stays_until_it_is_released(make_engine, was_cached, salt) -> None:
    engine, model = make_engine(**SMALL)
    if was_cached:
        cached(engine, PREFIX, salt)
    with engine.cache(PREFIX, cache_salt=salt) as prefix:
        assert prefix.num_tokens == len(PREFIX)
        assert engine.stats()["pinned_pages"] == 8
        press(engine)
        engine.flush_cache()
        assert cached(engine, (*PREFIX, 1, 2), salt) == len(PREFIX)
        assert cached(engine, (*PREFIX, 1, 2), "another") == 0
        assert idle(engine)
    prefix.release()  # twice is harmless
    press(engine)
    assert engine.stats()["pinned_pages"] == 0
    assert cached(engine, (*PREFIX, 1, 2), salt) < len(PREFIX)
    (done,) = engine.generate([PREFIX], GREEDY)
    assert list(done.token_ids) == model.greedy(PREFIX, 12, stop_at_eos=False)


def test_pins_leave_room_for_the_longest_sequence(make_engine) -> None:
    engine, model = make_engine(**SMALL)
    kept = []
    with pytest.raises(CacheFull, match="at most 80 may be: release some"):
        for prompt in OTHERS:
            kept.append(engine.cache(prompt))
    assert len(kept) == 2
    (done,) = engine.generate([PREFIX], GREEDY)
    assert list(done.token_ids) == model.greedy(PREFIX, 12, stop_at_eos=False)
    kept.pop().release()
    kept.append(engine.cache(OTHERS[5]))
    assert cached(engine, OTHERS[5]) == len(OTHERS[5]) - 1


def test_a_pool_for_one_sequence_pins_nothing(make_engine) -> None:
    engine, _ = make_engine(max_seq_len=64, kv_memory=17 * 4 * 64)
    with pytest.raises(CacheFull, match="raise kv_memory"):
        engine.cache(PREFIX)
    assert engine.stats()["cached_pages"] == 8


def test_texts_are_taken_as_generate_takes_them(make_engine) -> None:
    engine, _ = make_engine()
    with engine.cache("a shared beginning, then") as prefix:
        assert prefix.num_tokens == len("a shared beginning, then")
        assert cached(engine, tuple(b"a shared beginning, and")) == len("a shared beginning, ")


def test_what_cannot_be_cached_is_refused(make_engine) -> None:
    engine, model = make_engine(enable_prefix_caching=False)
    with pytest.raises(InvalidRequest, match="enable_prefix_caching"):
        engine.cache("abc")
    engine, model = make_engine()
    for wrong in ([], [999], 7, "x" * 600):
        with pytest.raises(InvalidRequest):
            engine.cache(wrong)
    with pytest.raises(InvalidRequest):
        engine.cache("abc", cache_salt="")
    model.fail_with = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        engine.cache("abc")
    assert engine.stats()["pinned_pages"] == 0
    model.fail_with = None
    prefix = engine.cache("abc")
    engine.close()
    prefix.release()
    with pytest.raises(EngineClosed):
        engine.cache("abc")


def test_many_threads_at_once(make_engine) -> None:
    engine, _ = make_engine(kv_memory=2**20)
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                with engine.cache((*PREFIX, number % 2, turn)) as prefix:
                    assert cached(engine, (*PREFIX, number % 2, turn, 3)) == prefix.num_tokens
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    press(engine)
    assert engine.stats()["pinned_pages"] == 0
    try:
        engine._core.scheduler.check()
    except PageError as error:
        pytest.fail(str(error))
