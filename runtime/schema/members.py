"""Object shapes as plans: every key that is mentioned with its set, and all other keys in regions.

A plan says what an `ObjectForm` does, but some of its sets may turn out to have no value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from treille.runtime.schema.bases import EVERYTHING, NOTHING
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.shapes import ANY_STRING, Exists, ObjectShape, Shapes, Work
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import is_spellable, spellable

MAX_WORDS = 1000
_FEW_WORDS = 200  # enough, where not so many keys are needed
_FEW_REGIONS = 8
_MAX_REGIONS = 1024
MAX_EXISTS = 6
MAX_PLANS = 4096
_MAX_COMPARED = 256

Ways = tuple[tuple[int, int], ...]  # options: a set, and marks


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """Objects with a value of set `names[k]` at key k (`NOTHING`: without k), which are in schema order if
    they are in `declared`; other keys are in a region, whose options are sets with marks. `implied`: for
    some keys, all others that must be there with them."""

    names: Mapping[str, int]
    declared: frozenset[str]
    regions: tuple[tuple[Strings, Ways], ...]
    required: frozenset[str]
    low: int
    high: int | None
    implied: Mapping[str, frozenset[str]]
    num_exists: int = 0


class Members:
    """The object shapes of one document as plans."""

    def __init__(self, literals: Literals, languages: Languages, shapes: Shapes, work: Work) -> None:
        self._literals = literals
        self._languages = languages
        self._shapes = shapes
        self._work = work

    def plans(self, shape: ObjectShape) -> list[ObjectPlan]:
        """The plans of a shape, whose union it is."""
        implied = _closure(shape.dependent)
        required = set(shape.required)
        for name in shape.required:
            required |= implied.get(name, frozenset())
        names = dict(shape.names)
        for name in [
            *sorted(shape.required),
            *(name for key, others in implied.items() for name in (key, *sorted(others))),
        ]:
            if name not in names:
                names[name] = self._shapes.ruled(shape.rules, name)
        regions = self._regions(shape, names)
        for union in shape.domain:
            for name in names:
                if not self._is_in(union, name):
                    names[name] = NOTHING
        if len(spellable(names)) < len(names):
            names = {name: value if is_spellable(name) else NOTHING for name, value in names.items()}
        if any(names[name] == NOTHING for name in required):
            return []
        plan = ObjectPlan(
            names,
            frozenset(shape.names) - shape.unordered,
            tuple((strings, ((value, 0),)) for strings, value in regions),
            frozenset(required),
            shape.low,
            shape.high,
            implied,
        )
        return self._with_exists(plan, shape.exists) if shape.exists else [plan]

    def _is_in(self, union: tuple[Strings, ...], name: str) -> bool:
        return any(self._languages.contains(strings, name) for strings in union)

    def _regions(self, shape: ObjectShape, names: dict[str, int]) -> list[tuple[Strings, int]]:
        """All other keys, by how they are treated. Those of a finite language join `names`."""
        if not shape.domain and not shape.exists and not any(rule.patterns for rule in shape.rules):
            value = self._shapes.ruled(shape.rules, "") if shape.rules else EVERYTHING
            return [] if value == NOTHING else [(ANY_STRING, value)]
        regions = [ANY_STRING]
        for union in shape.domain:
            inside, _ = self._split(regions, union)
            regions = [strings for strings in inside if strings.only is None]
            for name in (name for strings in inside for name in sorted(strings.only or ())):
                names.setdefault(name, self._shapes.ruled(shape.rules, name))
        for pattern in dict.fromkeys(pattern for rule in shape.rules for pattern, _ in rule.patterns):
            inside, outside = self._split(regions, (Strings(every=frozenset((pattern,))),))
            regions = inside + outside
        for some in shape.exists:
            plain = tuple(_without_words(strings) for strings in some.names if strings.only is None)
            inside, outside = self._split(regions, plain)
            regions = inside + outside
            for strings in some.names:
                for name in sorted(strings.only or ()):
                    names.setdefault(name, self._shapes.ruled(shape.rules, name))
                for name in sorted(strings.excluded):
                    names.setdefault(name, self._shapes.ruled(shape.rules, name))
        return self._treated(shape, names, regions)

    def _treated(
        self, shape: ObjectShape, names: dict[str, int], regions: list[Strings]
    ) -> list[tuple[Strings, int]]:
        found = []
        for strings in regions:
            value = self._value(shape, strings)
            if value == NOTHING:
                continue
            if strings != ANY_STRING:
                self._work.spend(10)
                known = [name for name in names if self._languages.contains(strings, name)]
                most = _FEW_WORDS if shape.low < _FEW_WORDS else MAX_WORDS
                words = self._languages.words(strings, most + len(known))
                if words is not None:
                    new = [word for word in words if word not in names]
                    if len(new) <= most:
                        names.update((word, value) for word in new)
                        continue
            found.append((strings, value))
        return found

    def _value(self, shape: ObjectShape, strings: Strings) -> int:
        """The set of the values of the keys of a region, each of whose languages a rule's pattern is
        either in or out of."""
        found = EVERYTHING
        for rule in shape.rules:
            matched = False
            for pattern, value in rule.patterns:
                if pattern in strings.every:
                    matched = True
                    found = self._literals.meet(found, value)
            if not matched:
                found = self._literals.meet(found, rule.rest)
        return found

    def _split(self, regions: list[Strings], union: Iterable[Strings]) -> tuple[list[Strings], list[Strings]]:
        """The parts of regions within a union, and those outside; no two parts have a string in common."""
        inside: list[Strings] = []
        outside = regions
        for strings in union:
            if strings == ANY_STRING:
                return inside + outside, []
            rest: list[Strings] = []
            for region in outside:
                inside.append(self._languages.meet(region, strings))
                left = region
                for part in self._languages.complement(strings):
                    rest.append(self._languages.meet(left, part))
                    # a part has one condition only, and so has what it leaves
                    left = self._languages.meet(left, self._languages.complement(part)[0])
            outside = self._pruned(rest)
        return self._pruned(inside), outside

    def _pruned(self, regions: list[Strings]) -> list[Strings]:
        kept = [region for region in regions if region.only is None or region.only]
        if len(kept) > _FEW_REGIONS:
            self._work.spend(5 * len(kept))
            kept = [region for region in kept if not self._languages.is_empty(region)]
        if len(kept) > _MAX_REGIONS:
            raise self._work.too_much(f"its patterns tell more than {_MAX_REGIONS} kinds of keys apart")
        return kept

    def _with_exists(self, plan: ObjectPlan, exists: tuple[Exists, ...]) -> list[ObjectPlan]:
        """One plan for each choice of what has the value that must exist: a key of `names`, or one in a
        region. What a key that is required has anyway needs no choice."""
        partial: list[tuple[ObjectPlan, tuple[Exists, ...]]] = [(plan, ())]
        for some in exists:
            names = [name for name in plan.names if self._is_in(some.names, name)]
            marked = any(self._is_within(strings, some) for strings, _ in plan.regions)
            chosen: dict[Hashable, tuple[ObjectPlan, tuple[Exists, ...]]] = {}
            for one, regions in partial:
                if any(name in one.required and self._is_held(one, name, some) for name in names):
                    chosen.setdefault(_identity(one, regions), (one, regions))
                    continue
                if marked:
                    chosen.setdefault(_identity(one, (*regions, some)), (one, (*regions, some)))
                for name in names:
                    self._work.spend(1 + len(plan.names) // 8)
                    new = self._with_member(one, name, some.value)
                    if new is not None:
                        chosen.setdefault(_identity(new, regions), (new, regions))
            partial = list(chosen.values())
            if len(partial) > MAX_PLANS:
                raise self._work.too_much(f"it has more than {MAX_PLANS} alternatives of one type")
        return [self._marked(one, regions) if regions else one for one, regions in partial]

    def _is_held(self, plan: ObjectPlan, name: str, some: Exists) -> bool:
        return self._literals.is_within(plan.names[name], some.value)

    def _with_member(self, plan: ObjectPlan, name: str, value: int) -> ObjectPlan | None:
        """The objects of a plan in which a key has a value of a set."""
        both = self._literals.meet(plan.names[name], value)
        required = plan.required | {name} | plan.implied.get(name, frozenset())
        if both == NOTHING or any(plan.names[other] == NOTHING for other in required):
            return None
        if plan.high is not None and len(required) > plan.high:
            return None
        return replace(plan, names={**plan.names, name: both}, required=required)

    def _is_within(self, strings: Strings, some: Exists) -> bool:
        """Whether a region, which is inside or outside of what must exist, is inside."""
        for part in some.names:
            if part.only is None and not self._languages.is_empty(
                self._languages.meet(strings, _without_words(part))
            ):
                return True
        return False

    def _marked(self, plan: ObjectPlan, exists: tuple[Exists, ...]) -> ObjectPlan:
        """The objects of a plan in which what must exist is in regions."""
        wanted: dict[Hashable, Exists] = {}
        for some in exists:
            where = tuple(self._is_within(strings, some) for strings, _ in plan.regions)
            wanted.setdefault((where, some.value), some)  # what one key does for one of these it does for all
        if len(wanted) > MAX_EXISTS:
            raise self._work.too_much(f"more than {MAX_EXISTS} keys must exist that are not named")
        regions = []
        for strings, ways in plan.regions:
            for bit, some in enumerate(wanted.values()):
                if self._is_within(strings, some):
                    more = [
                        (self._literals.meet(value, some.value), marks | 1 << bit) for value, marks in ways
                    ]
                    ways = undominated([way for way in (*ways, *more) if way[0] != NOTHING])
            regions.append((strings, ways))
        return replace(plan, regions=tuple(regions), num_exists=len(wanted))

    def widest(self, plans: list[ObjectPlan]) -> tuple[ObjectPlan, ...]:
        """The same union without plans that are, as can be seen, within others."""
        if not 1 < len(plans) <= _MAX_COMPARED:
            return tuple(plans)
        kept: list[ObjectPlan] = []
        for plan in sorted(plans, key=lambda one: len(one.required)):
            self._work.spend(1 + len(kept) // 32)
            if not any(other.required <= plan.required and self._is_part(plan, other) for other in kept):
                kept.append(plan)
        return tuple(kept)

    def _is_part(self, one: ObjectPlan, other: ObjectPlan) -> bool:
        """Whether a plan, which requires all that another does, is within that one."""
        return (
            one.names.keys() == other.names.keys()
            and (one.regions, one.low, one.high, one.num_exists)
            == (other.regions, other.low, other.high, other.num_exists)
            and one.implied == other.implied
            and all(self._literals.is_within(value, other.names[name]) for name, value in one.names.items())
        )


def _identity(plan: ObjectPlan, exists: tuple[Exists, ...]) -> Hashable:
    """What tells plans apart that come from the same one by choices."""
    return plan.required, tuple(plan.names.values()), exists


def undominated(ways: Iterable[tuple[int, int]]) -> Ways:
    """Options without those of the same set that have fewer marks."""
    few = list(dict.fromkeys(ways))
    return tuple(
        (value, marks)
        for value, marks in few
        if not any(other == value and marks != more and marks & ~more == 0 for other, more in few)
    )


def _without_words(strings: Strings) -> Strings:
    """The same language with the few words it excludes, which are keys of their own."""
    return Strings(strings.every, strings.none, strings.low, strings.high)


def _closure(dependent: tuple[tuple[str, frozenset[str]], ...]) -> dict[str, frozenset[str]]:
    """For each key all keys that must be there with it, itself left out."""
    direct: dict[str, set[str]] = {}
    for name, others in dependent:
        direct.setdefault(name, set()).update(others)
    found = {}
    for name in direct:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            for other in direct.get(waiting.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        found[name] = frozenset(reached - {name})
    return found
