"""Values as source text: a run that went wrong, told as a test to paste."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, cast, final

import attrs

from turnwheel.effects.config import Config
from turnwheel.effects.history import History, Rope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provers.steps import Happening
    from turnwheel.engine.core.machine import Machine


@final
@attrs.frozen
class Claim:
    """What does not hold at the end of a run: what *check* finds wrong with ``run`` and *values*."""

    check: Callable[..., list[str]]
    values: tuple[object, ...] = ()


@final
@attrs.define
class Writer:
    """Writes values as source text; *names* are those that the text needs, with their modules."""

    names: dict[str, str] = attrs.field(factory=dict)

    def named(self, what: Any) -> str:  # a class or a function
        """The name of *what*, which the text needs."""
        self.names[what.__name__] = what.__module__
        return str(what.__name__)

    @property
    def imports(self) -> list[str]:
        """The lines that bring in all names."""
        modules: dict[str, list[str]] = {}
        for name, module in sorted(self.names.items()):
            modules.setdefault(module, []).append(name)
        return [f"from {module} import {', '.join(names)}" for module, names in sorted(modules.items())]

    def source(self, value: object) -> str:
        """*value* as Python text; fields at their default are left out."""
        if isinstance(value, Enum):
            return f"{self.named(type(value))}.{value.name}"
        if isinstance(value, tuple):
            items = [self.source(item) for item in cast("tuple[object, ...]", value)]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(value, History | Rope):
            return self._shared(value)
        if isinstance(value, Decimal):
            return f'{self.named(Decimal)}("{value}")'
        if attrs.has(type(value)):
            return self._instance(cast("attrs.AttrsInstance", value))
        return repr(value)

    def _shared(self, value: History | Rope) -> str:
        name = self.named(type(value))
        if isinstance(value, Rope):
            return f"{name}.of({self.source(value.pieces)}, {value.count})"
        revision = [f"revision={value.revision}"] if value.revision else []
        return f"{name}.of({', '.join([*map(self.source, value), *revision])})"

    def _instance(self, value: attrs.AttrsInstance) -> str:
        said: list[str] = []
        named = False
        for field in attrs.fields(type(value)):
            part = getattr(value, field.name)
            named = named or field.kw_only
            if field.default is attrs.NOTHING or part != field.default:
                text = self.source(part)
                said.append(f"{field.name}={text}" if named else text)
            else:
                named = True  # what follows is in no place of its own any more
        return f"{self.named(type(value))}({', '.join(said)})"


def told(
    began: Machine, journal: Iterable[Happening], claim: Claim | None = None, *, by_hand: bool = False
) -> str:
    """
    A module with a test that plays *journal* to a machine that *began* so, and fails where a promise breaks.

    *claim* is what it finds wrong at its end, where it does so no earlier. *by_hand*: no state is passed
    through unless somebody enters it.
    """
    writer = Writer({"Watched": f"{__package__}.watched"})
    machine = (
        f"{writer.named(type(began))}(config, {writer.source(began.state)}, {writer.source(began.memory)})"
    )
    feed = "step" if by_hand else "feed"
    lines = [
        f"    config = {writer.source(began.config)}",
        f"    run = Watched.of({machine})",
        *([] if by_hand else ["    run.feed(None)"]),
        *[
            f"    run.reconfigure({writer.source(one)})"
            if isinstance(one, Config)
            else f"    assert run.{feed}({writer.source(one)})"
            for one in journal
        ],
    ]
    if claim is not None:
        values = ", ".join(["run", *[writer.source(value) for value in claim.values]])
        lines.append(f"    assert {writer.named(claim.check)}({values}) == []")
    return "\n".join([*writer.imports, "", "", "def test_found() -> None:", *lines])
