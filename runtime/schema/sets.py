"""`DocumentSets`: the sets of a document and what their values may be.

Sources: the JSON Schema specifications (drafts 4 to 2020-12); for the algebra, Attouche et al., "Witness
Generation for JSON Schema" (VLDB 2022), and Habib et al., "Finding Data Compatibility Bugs with JSON
Subschema Checking" (ISSTA 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from treille.runtime.errors import InvalidConstraint
from treille.runtime.schema.bases import EVERYTHING, NOTHING
from treille.runtime.schema.building import array_form, merged_strings, object_form
from treille.runtime.schema.conflicts import conflict
from treille.runtime.schema.counting import Counting
from treille.runtime.schema.document import Document
from treille.runtime.schema.forms import NOTHING as NO_FORMS
from treille.runtime.schema.forms import Forms, Note
from treille.runtime.schema.inhabited import Ask, Inhabited, Plans
from treille.runtime.schema.items import ArrayPlan, Items
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.members import Members, ObjectPlan
from treille.runtime.schema.normal import Normal
from treille.runtime.schema.plain import Plain
from treille.runtime.schema.possible_objects import object_is_possible
from treille.runtime.schema.risks import parts_of, simple_parts
from treille.runtime.schema.shapes import Shapes, Work

_T = TypeVar("_T")

_FEW = 64

MAX_WORK = 200_000  # steps that take some 10 us each


class DocumentSets:
    """The sets of one document (see `forms.Sets`); not safe to share between threads.

    `check` is called now and then and may raise, when time is up or nobody waits. Raises
    `InvalidConstraint` for a schema that no value holds, naming what conflicts, and
    `UnsupportedConstraint` where it takes too much to know.
    """

    def __init__(
        self,
        document: Document,
        languages: Languages,
        *,
        check: Callable[[], None] | None = None,
        max_work: int = MAX_WORK,
        max_alternatives: int = 4096,
    ) -> None:
        self.languages = languages
        self._work = Work(max_work, check)
        self._literals = Literals(document)
        shapes = Shapes(self._literals, languages, self._work, max_alternatives=max_alternatives)
        self._normal = Normal(self._literals, languages, shapes, self._work)
        self._members = Members(self._literals, languages, shapes, self._work)
        self._items = Items(self._literals, self._work)
        self._counting = Counting(self.forms, languages, self._work)
        plain = Plain(self._literals)
        self.inhabited = Inhabited(
            self._plans, plain.set_is_plain, self._array_is_possible, self._object_is_possible, self._work
        )
        self._known_plans: dict[int, Plans] = {}
        self._forms: dict[int, Forms] = {NOTHING: NO_FORMS}
        self._is_busy = False
        self.notes: list[Note] = list(document.notes)
        self.root = self._literals.single(self._literals.of_node(document.root, ()))
        if not self.inhabited(self.root):
            raise InvalidConstraint(
                conflict(self._literals, self._plans, self.inhabited, self.root), field="schema"
            )
        self.forms(self.root)

    def forms(self, number: int) -> Forms:
        """What the values of a set are. Raises `UnsupportedConstraint` where that cannot be said exactly."""
        found = self._forms.get(number)
        if found is None:
            found = self._built(number) if self._is_busy else self._alone(lambda: self._built(number))
            self._forms[number] = found
        return found

    def simple_parts(self, number: int) -> list[int] | None:
        """The sets of the parts of a set's values where that can be said without working it out, and doing so
        will not turn out to be too much; else None."""
        return simple_parts(self._literals, number)

    def explore(self, max_sets: int = 50_000) -> None:
        """Work out every set that a value of the root may have a part in, so that what cannot be enforced
        is found now; but not those where nothing can turn out so.

        Raises `UnsupportedConstraint`, also if there are more than `max_sets` sets.
        """
        self._work.begin()
        seen = {self.root}
        waiting = [self.root]
        while waiting:
            number = waiting.pop()
            parts = self.simple_parts(number)
            for part in parts_of(self.forms(number)) if parts is None else parts:
                if part not in seen:
                    seen.add(part)
                    waiting.append(part)
            if len(seen) > max_sets:
                raise self._work.too_much(f"its values have over {max_sets} kinds of parts")

    def _alone(self, task: Callable[[], _T]) -> _T:
        """The result of a task that has all the time it may take for itself."""
        self._work.begin()
        self._is_busy = True
        try:
            return task()
        finally:
            self._is_busy = False

    def without(self, number: int, value: object) -> int:
        """The set of the values of another that do not equal a value (which may be new, and may be empty)."""
        unlike = self._literals.single(self._literals.constant(value) ^ 1)
        return self._literals.meet(number, unlike)

    def num_values(self, number: int, limit: int) -> int:
        """How many different values a set has, or `limit` if there are at least so many."""
        values = self._alone(lambda: self._counting.values(number, limit))
        return limit if values is None else len(values)

    def few_values(self, number: int, limit: int) -> list[object] | None:
        """The values of a set if they are fewer than `limit`."""
        return self._alone(lambda: self._counting.values(number, limit))

    def describe(self, number: int) -> list[str]:
        """The pointers of the schemas that hold (or, with "not " in front, do not) in a set."""
        literals = self._literals
        return [("not " if one & 1 else "") + literals.pointer(one) for one in literals.sets[number]]

    def _built(self, number: int) -> Forms:
        plans = self._plans(number)
        alive = self.inhabited
        arrays = tuple(
            array_form(plan, alive) for plan in plans.arrays if self._array_is_possible(plan, alive)
        )
        objects = []
        for plan in plans.objects:
            form = object_form(plan, alive, self.languages, self._work)
            if form is not None:
                objects.append(form)
        return Forms(plans.words, plans.numbers, plans.strings, _distinct(arrays), _distinct(tuple(objects)))

    def _plans(self, number: int) -> Plans:
        found = self._known_plans.get(number)
        if found is None:
            typed = self._normal.of_set(number)
            found = self._known_plans[number] = Plans(
                typed.words,
                _distinct(typed.numbers) if len(typed.numbers) <= _FEW else typed.numbers,
                merged_strings(typed.strings, self.languages),
                tuple(plan for shape in typed.arrays for plan in self._items.plans(shape)),
                self._members.widest(
                    [plan for shape in typed.objects for plan in self._members.plans(shape)]
                ),
            )
        return found

    def _object_is_possible(self, plan: ObjectPlan, ask: Ask) -> bool:
        return object_is_possible(plan, ask, self.languages, self._work)

    def _array_is_possible(self, plan: ArrayPlan, ask: Ask) -> bool:
        return self._counting.array_is_possible(plan, ask, self._has_many)

    def _has_many(self, number: int, limit: int, ask: Ask) -> bool:
        """Whether a set surely has so many values."""
        if number == EVERYTHING:
            return True
        plans = self._plans(number)
        count = len(plans.words)
        for numbers in plans.numbers:
            if numbers.count(limit) >= limit:
                return True
        for strings in plans.strings:
            if self.languages.count(strings, limit) >= limit:
                return True
        return count >= limit


def _distinct(parts: tuple[_T, ...]) -> tuple[_T, ...]:
    return parts if len(parts) < 2 else tuple(dict.fromkeys(parts))
