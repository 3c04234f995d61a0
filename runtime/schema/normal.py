"""Literals as unions of shapes, one level deep: what a value itself must be, and which sets its parts are
in.

All that applies to the same value is brought together here: references, `allOf`, `anyOf`, `oneOf`, `not`,
`if` and `dependentSchemas` become unions and meets, and a negation is the union of the ways to fail. The
parts of a value stay sets, so nothing recursive is unrolled.

`unevaluatedProperties` and `unevaluatedItems` ask which branches hold, since only those evaluate. Where
one is in sight, alternatives carry what they have seen. For the schema to hold it is enough to say which
branches hold at least (more that hold evaluate more, and so ask less); for it to fail, alternatives say of
each branch whether it holds.
"""

from __future__ import annotations

from collections.abc import Generator

from treille.runtime.schema.bases import (
    EVERYTHING,
    FALSE,
    IN_PLACE,
    NOTHING,
    REFERENCES,
    TRUE,
    UNEVALUATED,
    Base,
    circular,
    schema_of,
)
from treille.runtime.schema.keywords import Keywords
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.numbers import ANY_NUMBER
from treille.runtime.schema.shapes import (
    ALL,
    ALL_WORDS,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    NONE,
    ObjectShape,
    Shapes,
    Typed,
    Work,
)
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.unevaluated import Unevaluated

# How much alternatives say of the branches that hold: nothing, which hold at least, which exactly.
PLAIN, LEAST, EXACT = 0, 1, 2

_LAST = ("dependentSchemas", "not", "if", "anyOf", "oneOf")

Asked = tuple[int, int]
Steps = Generator[Asked, Typed, Typed]
_NamesSteps = Generator[Asked, Typed, tuple[Strings, ...] | None]


class Normal:
    """The literals of one document as unions of shapes."""

    def __init__(self, literals: Literals, languages: Languages, shapes: Shapes, work: Work) -> None:
        self._literals = literals
        self._shapes = shapes
        self._work = work
        self._keywords = Keywords(literals, languages, shapes)
        self._unevaluated = Unevaluated(literals, shapes)
        self._known: dict[Asked, Typed] = {(TRUE, PLAIN): ALL, (FALSE, PLAIN): NONE}

    def of_set(self, number: int) -> Typed:
        """What the values of a set are. Raises `UnsupportedConstraint` past the limits,
        `InvalidConstraint` for a schema that asks of a value only that it hold itself."""
        members = self._literals.sets[number]
        if len(members) == 1:
            return self.typed(members[0])
        parts = [self.typed(literal) for literal in members if not self._is_not_value(literal)]
        ruled_out = [self._literals.bases[one >> 1].value for one in members if self._is_not_value(one)]
        if ruled_out:
            parts.append(self._keywords.unlike(ruled_out))
        parts.sort(
            key=lambda part: len(part.objects) + len(part.arrays) + len(part.strings) + len(part.numbers)
        )
        found = ALL
        for part in parts:
            found = self._shapes.meet(found, part)
        return found

    def _is_not_value(self, literal: int) -> bool:
        """Whether a literal rules out one value, and nothing else."""
        base = self._literals.bases[literal >> 1]
        return bool(literal & 1 and base.node is None and base.keys)

    def typed(self, literal: int) -> Typed:
        """What the values that hold a literal are."""
        asked = (literal, PLAIN)
        found = self._known.get(asked)
        if found is not None:
            return found
        open_steps = {asked: self._steps(asked)}
        order = [asked]
        answer: Typed | None = None
        while order:
            here = order[-1]
            try:
                wanted = open_steps[here].send(answer) if answer is not None else next(open_steps[here])
            except StopIteration as end:
                answer = self._known[here] = end.value
                open_steps.pop(order.pop())
                continue
            answer = self._known.get(wanted)
            if answer is None:
                if wanted in open_steps:
                    raise circular(self._literals.pointer(wanted[0]))
                self._work.spend()
                open_steps[wanted] = self._steps(wanted)
                order.append(wanted)
        return self._known[asked]

    def _steps(self, asked: Asked) -> Steps:
        literal, track = asked
        base = self._literals.bases[literal >> 1]
        if base.node is None:
            return self._plain_steps(base, literal)
        self._work.place = ("schema", base.node)
        return self._fail(base) if literal & 1 else self._hold(base, track)

    def _plain_steps(self, base: Base, literal: int) -> Steps:
        if base.keys:
            return self._keywords.equal_to(base, negated=bool(literal & 1))
        if literal in (TRUE, FALSE):
            return NONE if literal & 1 else ALL
        parts = []
        for part in base.parts:
            parts.append((yield part ^ (literal & 1), PLAIN))
        return self._all(parts) if literal & 1 else self._shapes.join(parts)

    def _all(self, parts: list[Typed], *, keep: bool = False) -> Typed:
        found = ALL
        for part in parts:
            found = self._shapes.meet(found, part, keep=keep)
        return found

    def _names(self, base: Base, *, negated: bool) -> _NamesSteps:
        """What `propertyNames` says of keys: one of these unions (if it is negated, one of the others)."""
        if "propertyNames" not in base.keys:
            return None
        names = self._literals.child(base, "propertyNames")
        if names == TRUE:
            return None
        found = yield names ^ negated, PLAIN
        return None if ANY_STRING in found.strings and not negated else found.strings

    def _hold(self, base: Base, track: int) -> Steps:
        """The ways for a schema to hold."""
        own = track or (LEAST if any(key in UNEVALUATED for key in base.keys) else PLAIN)
        found = yield from self._hold_evaluated(base, own)
        return self._unevaluated.hold(base, found, track=track != PLAIN)

    def _hold_evaluated(self, base: Base, track: int) -> Steps:
        """The ways for its keywords other than `unevaluated...` to hold."""
        names = yield from self._names(base, negated=False)
        found = self._keywords.hold(base, names, track=track != PLAIN)
        keep = track != PLAIN
        for key in sorted(base.keys, key=_turn):
            if key not in IN_PLACE:
                continue
            if found == NONE:
                return NONE
            if key in REFERENCES:
                part = yield self._target(base, key), track
            elif key == "not":
                part = yield self._literals.child(base, key) ^ 1, PLAIN
            elif key == "allOf":
                part = ALL
                for literal in self._branches(base, key):
                    part = self._shapes.meet(part, (yield literal, track), keep=keep)
            elif key == "anyOf":
                part = yield from self._any_of(self._branches(base, key), track)
            elif key == "oneOf":
                found = yield from self._one_of(self._branches(base, key), track, found)
                continue
            elif key == "if":
                part = yield from self._if(base, track)
            else:
                part = yield from self._dependent(base, track)
            self._work.place = (key, base.node or "#")
            found = self._shapes.meet(found, part, keep=keep)
        return found

    def _fail(self, base: Base) -> Steps:
        """The ways for a schema not to hold."""
        names = yield from self._names(base, negated=True)
        parts = [self._keywords.fail(base, names)]
        for key in base.keys:
            if key in REFERENCES:
                parts.append((yield self._target(base, key) ^ 1, PLAIN))
            elif key == "not":
                parts.append((yield self._literals.child(base, key), PLAIN))
            elif key == "allOf":
                for literal in self._branches(base, key):
                    parts.append((yield literal ^ 1, PLAIN))
            elif key in ("anyOf", "oneOf"):
                parts.append((yield from self._none_of(self._branches(base, key))))
                if key == "oneOf":
                    parts.extend((yield from self._two_of(self._branches(base, key))))
            elif key == "if":
                condition, then, other = self._if_parts(base)
                parts.append(self._shapes.meet((yield condition, PLAIN), (yield then ^ 1, PLAIN)))
                parts.append(self._shapes.meet((yield condition ^ 1, PLAIN), (yield other ^ 1, PLAIN)))
            elif key == "dependentSchemas":
                for name, literal in self._dependencies(base):
                    parts.append(self._shapes.meet(_with_key(name, others=False), (yield literal ^ 1, PLAIN)))
        if any(key in UNEVALUATED for key in base.keys):
            found = yield from self._hold_evaluated(base, EXACT)
            parts.append(self._unevaluated.fail(base, found))
        self._work.place = ("not", base.node or "#")
        return self._shapes.join(parts)

    def _target(self, base: Base, key: str) -> int:
        if base.node is None:
            raise ValueError("a value has no references")
        document = self._literals.document
        if key == "$ref":
            return self._literals.of_node(document.target(base.node), base.scope)
        return self._literals.of_node(document.dynamic_target(base.node, base.scope), base.scope)

    def _branches(self, base: Base, key: str) -> list[int]:
        return [self._literals.child(base, key, place) for place in range(len(schema_of(base)[key]))]

    def _dependencies(self, base: Base) -> list[tuple[str, int]]:
        child = self._literals.child
        return [(name, child(base, "dependentSchemas", name)) for name in schema_of(base)["dependentSchemas"]]

    def _any_of(self, branches: list[int], track: int) -> Steps:
        parts = []
        for literal in branches:
            parts.append((yield literal, track))
        whole = self._shapes.join(parts, keep=track != PLAIN)
        if track == PLAIN:
            return whole
        none, some = ALL, NONE
        for literal, part in zip(branches, parts, strict=True):
            nested = _nested(part)
            both = [self._shapes.meet(none, nested, keep=True), some]
            if track == EXACT:
                without = _nested((yield literal ^ 1, PLAIN))
                both[1] = self._shapes.meet(some, without, keep=True)
                none = self._shapes.meet(none, without, keep=True)
            if _sees(part) or track == EXACT:
                both.append(self._shapes.meet(some, nested, keep=True))
            some = self._shapes.join(both, keep=True)
        return Typed(whole.words, whole.numbers, whole.strings, some.arrays, some.objects)

    def _one_of(self, branches: list[int], track: int, context: Typed) -> Steps:
        """The values of `context` that are of one branch and none of the others. A branch is narrowed only
        by those with which it has something in common there, as can be seen at once."""
        keep = track != PLAIN
        plain = []
        for literal in branches:
            plain.append(self._shapes.meet(context, (yield literal, PLAIN), keep=keep))
        rivals: list[list[tuple[int, Typed]]] = [[] for _ in branches]
        for place, literal in enumerate(branches):
            for other in range(place):
                common = self._common(branches[other], plain[other], literal, plain[place])
                if common != NONE:
                    rivals[place].append((branches[other], common))
                    rivals[other].append((literal, common))
        found = []
        for place, literal in enumerate(branches):
            self._work.place = ("oneOf", self._literals.bases[literal >> 1].node or "#")
            part = self._shapes.meet(context, (yield literal, track), keep=keep) if keep else plain[place]
            for rival, common in rivals[place]:
                if part != NONE:
                    part = self._shapes.meet(part, _where(common, (yield rival ^ 1, PLAIN)), keep=keep)
            found.append(part)
        return self._shapes.join(found, keep=keep)

    def _common(self, one: int, first: Typed, other: int, second: Typed) -> Typed:
        """What two branches have in common, at sight."""
        if (
            not (one | other) & 1
            and not self._literals.summary(one).mask & self._literals.summary(other).mask
        ):
            return NONE
        return self._shapes.meet(first, second)

    def _none_of(self, branches: list[int]) -> Steps:
        found = ALL
        for literal in branches:
            found = self._shapes.meet(found, (yield literal ^ 1, PLAIN))
        return found

    def _two_of(self, branches: list[int]) -> Generator[Asked, Typed, list[Typed]]:
        parts: list[Typed] = []
        found = []
        for place, literal in enumerate(branches):
            part = yield literal, PLAIN
            for other in range(place):
                found.append(self._common(branches[other], parts[other], literal, part))
            parts.append(part)
        return found

    def _if_parts(self, base: Base) -> tuple[int, int, int]:
        schema = schema_of(base)
        condition, then, other = (
            self._literals.child(base, key) if key in schema else TRUE for key in ("if", "then", "else")
        )
        return condition, then, other

    def _if(self, base: Base, track: int) -> Steps:
        condition, then, other = self._if_parts(base)
        if then == other == TRUE and track == PLAIN:
            return ALL
        keep = track != PLAIN
        first = self._shapes.meet((yield condition, track), (yield then, track), keep=keep)
        second = self._shapes.meet((yield condition ^ 1, PLAIN), (yield other, track), keep=keep)
        return self._shapes.join((first, second), keep=keep)

    def _dependent(self, base: Base, track: int) -> Steps:
        """A key is not there, or a schema holds. Where it is said which schemas hold, only with the key
        they do."""
        keep = track != PLAIN
        found = ALL
        for name, literal in self._dependencies(base):
            part = yield literal, track
            if keep:
                part = self._shapes.meet(_with_key(name, others=True), part, keep=True)
            objects = (ObjectShape({name: NOTHING}), *part.objects)
            found = self._shapes.meet(found, _typed_objects(objects), keep=keep)
        return found


def _turn(key: str) -> int:
    """When a keyword has its turn: the more it divides, the later."""
    return _LAST.index(key) if key in _LAST else -1


def _with_key(name: str, *, others: bool) -> Typed:
    """Objects that have a key, and all other values if `others`."""
    shape = ObjectShape({name: EVERYTHING}, required=frozenset((name,)))
    return _typed_objects((shape,)) if others else Typed(objects=(shape,))


def _typed_objects(objects: tuple[ObjectShape, ...]) -> Typed:
    """Some objects and all values that are none."""
    return Typed(ALL_WORDS, (ANY_NUMBER,), (ANY_STRING,), (ANY_ARRAY,), objects)


def _nested(part: Typed) -> Typed:
    """Its arrays and objects."""
    return Typed(arrays=part.arrays, objects=part.objects)


def _sees(part: Typed) -> bool:
    """Whether something in it evaluates anything."""
    return any(one.seen != ANY_ARRAY.seen for one in part.arrays) or any(
        one.seen != ANY_OBJECT.seen for one in part.objects
    )


def _where(common: Typed, part: Typed) -> Typed:
    """`part` for the types that `common` has, and everything of the others."""
    return Typed(
        part.words if common.words else ALL_WORDS,
        part.numbers if common.numbers else (ANY_NUMBER,),
        part.strings if common.strings else (ANY_STRING,),
        part.arrays if common.arrays else (ANY_ARRAY,),
        part.objects if common.objects else (ANY_OBJECT,),
    )
