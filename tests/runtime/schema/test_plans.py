"""Plans for arrays and objects, and matchings, against brute force."""

from __future__ import annotations

import random
from itertools import combinations, combinations_with_replacement, product

import pytest

from treille.runtime.schema.array_plans import (
    ENDLESS,
    ArrayPlan,
    longest,
    random_array,
    smallest_array,
)
from treille.runtime.schema.distinct import matching
from treille.runtime.schema.forms import ArrayForm, Contains, Key, ObjectForm, Option, Region
from treille.runtime.schema.object_plans import ObjectPlan, random_object, smallest_object
from treille.runtime.schema.strings import Strings

SEEDS = range(300)
COSTS = (1, 1, 2, 5, ENDLESS)  # by number of set


def cost(number: int) -> int:
    return COSTS[number]


def random_options(rng: random.Random, most: int, num_marks: int) -> tuple[Option, ...]:
    return tuple(Option(rng.randrange(5), rng.randrange(1 << num_marks)) for _ in range(rng.randint(0, most)))


def random_array_form(rng: random.Random) -> ArrayForm:
    num = rng.choice((0, 1, 1, 2))
    contains = []
    for _ in range(num):
        low = rng.randint(0, 2)
        contains.append(Contains(low, rng.choice((None, low, low + 1))))
    low = rng.randint(0, 4)
    prefix = tuple(random_options(rng, 2, num) for _ in range(rng.randint(0, 3)))
    high = rng.choice((None, low, low + 1))
    return ArrayForm(prefix, random_options(rng, 2, num), low, high, tuple(contains))


def array_is_right(form: ArrayForm, options: list[Option]) -> bool:
    if len(options) < form.low or (form.high is not None and len(options) > form.high):
        return False
    for at, option in enumerate(options):
        if option not in (form.prefix[at] if at < len(form.prefix) else form.rest):
            return False
    counts = [sum(one.marks >> at & 1 for one in options) for at in range(len(form.contains))]
    return all(
        one.low <= count and (one.high is None or count <= one.high)
        for count, one in zip(counts, form.contains, strict=True)
    )


def cheapest_array(form: ArrayForm, most: int = 8) -> int | None:
    best = None
    for length in range(form.low, min(most, longest(form)) + 1):
        places = [form.prefix[at] if at < len(form.prefix) else form.rest for at in range(length)]
        for options in product(*places):
            price = 1 + sum(cost(one.value) for one in options)
            if price < ENDLESS and array_is_right(form, list(options)):
                best = price if best is None else min(best, price)
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_an_array_has_a_plan_exactly_if_it_can_have_one(seed: int) -> None:
    rng = random.Random(seed)
    form = random_array_form(rng)
    best = cheapest_array(form)
    plan = smallest_array(form, cost)
    assert (plan is None) == (best is None)
    if plan is None or best is None:
        return
    for found in (plan, random_array(form, cost, plan.cost + 12, rng) or plan):
        assert isinstance(found, ArrayPlan)
        options = found.options(rng)
        assert array_is_right(form, options)
        assert found.cost == 1 + sum(cost(one.value) for one in options)
        assert best <= found.cost <= plan.cost + 12


def random_object_form(rng: random.Random) -> ObjectForm:
    num_keys = rng.randint(0, 4)
    keys = []
    for at in range(num_keys):
        required = rng.random() < 0.25
        keys.append(Key(f"k{at}", random_options(rng, 2, 0), required=required))
    implied = {at: {one for one in range(num_keys) if rng.random() < 0.2} - {at} for at in range(num_keys)}
    for _ in range(num_keys):
        implied = {at: ones.union(*(implied[one] for one in ones)) - {at} for at, ones in implied.items()}
    keys = [
        Key(key.name, key.options, key.required, implies=tuple(sorted(implied[at])))
        for at, key in enumerate(keys)
    ]
    num = rng.choice((0, 0, 1, 2))
    regions = tuple(Region(Strings(), random_options(rng, 2, num)) for _ in range(rng.randint(0, 2)))
    low = rng.randint(0, 4)
    return ObjectForm(tuple(keys), regions, low, rng.choice((None, low, low + 1)), num)


def object_is_right(form: ObjectForm, keys: dict[int, Option], others: list[tuple[int, Option]]) -> bool:
    total = len(keys) + len(others)
    if total < form.low or (form.high is not None and total > form.high):
        return False
    for at, key in enumerate(form.keys):
        if at in keys and not (keys[at] in key.options and all(one in keys for one in key.implies)):
            return False
        if at not in keys and key.required:
            return False
    marks = 0
    for region, option in others:
        assert option in form.regions[region].options
        marks |= option.marks
    wanted = (1 << form.num_exists) - 1
    return marks & wanted == wanted


def can_have_an_object(form: ObjectForm) -> bool:
    """By trying all: subsets of keys, and up to two members of regions for the marks, the rest any."""
    usable = [at for at, key in enumerate(form.keys) if any(cost(o.value) < ENDLESS for o in key.options)]
    others = [
        (at, option)
        for at, region in enumerate(form.regions)
        for option in region.options
        if cost(option.value) < ENDLESS
    ]
    for num in range(len(usable) + 1):
        for chosen in combinations(usable, num):
            keys = {at: form.keys[at].options[0] for at in chosen}
            for more in range(3):
                for members in combinations_with_replacement(others, more):
                    lacking = max(0, form.low - num - more)
                    if object_is_right(form, keys, [*members, *others[:1] * lacking]):
                        return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_an_object_has_a_plan_exactly_if_it_can_have_one(seed: int) -> None:
    rng = random.Random(seed)
    form = random_object_form(rng)
    plan = smallest_object(form, cost, lambda form, region: 1000)
    assert (plan is not None) == can_have_an_object(form)
    if plan is None:
        return
    drawn = random_object(form, cost, lambda form, region: 1000, plan.cost + 12, rng)
    for found in (plan, drawn or plan):
        assert isinstance(found, ObjectPlan)
        assert object_is_right(form, found.keys, list(found.others))
        chosen = [*found.keys.values(), *(option for _, option in found.others)]
        assert found.cost == 1 + sum(cost(option.value) for option in chosen) <= plan.cost + 12


def test_a_region_with_few_names_is_not_asked_for_more() -> None:
    keys = (Key("a", (Option(3),)), Key("b", (Option(3),)))
    form = ObjectForm(keys, (Region(Strings(), (Option(0),)),), low=4)
    plan = smallest_object(form, cost, lambda form, region: 2)
    assert plan is not None
    assert (len(plan.keys), len(plan.others)) == (2, 2)
    assert smallest_object(form, cost, lambda form, region: 1) is None


def test_marks_take_the_fewest_members() -> None:
    options = tuple(Option(0, marks) for marks in (0b0011, 0b0110, 0b1100, 0b1001))
    form = ObjectForm((), (Region(Strings(), options),), high=2, num_exists=4)
    plan = smallest_object(form, cost, lambda form, region: 1000)
    assert plan is not None
    assert len(plan.others) == 2


def test_counts_in_the_millions_take_no_time() -> None:
    form = ArrayForm(rest=(Option(0, 1), Option(1)), low=10**12, contains=(Contains(10**6, 10**9),))
    plan = smallest_array(form, cost)
    assert plan is not None
    assert sum(times for _, times in plan.rest) == 10**12
    assert 10**6 <= dict(plan.rest)[Option(0, 1)] <= 10**9


@pytest.mark.parametrize("seed", range(200))
def test_a_matching_is_found_exactly_if_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    rows = [rng.sample(range(6), rng.randint(0, 4)) for _ in range(3)]
    places = [rng.randrange(3) for _ in range(rng.randint(0, 5))]
    possible = any(len(set(choice)) == len(choice) for choice in product(*(rows[one] for one in places)))
    taken = matching(places, rows)
    assert (taken is not None) == possible
    if taken is not None:
        assert len(set(taken)) == len(places)
        assert all(value in rows[place] for place, value in zip(places, taken, strict=True))
