"""
The outputs that callers in this process want of the runs of a session.

A journal has the schema of an output, and not its class: which class a run is read as is known here only. A
caller names it with a prompt, with a run that another process began, or for all runs of an agent.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ...effects.output import OutputIdentity, OutputSpec
    from ...performers.output import Output

    # Returns those of the given prompts that begin no run here.
    Over = Callable[[Sequence[str]], Iterable[str]]

# Shared: thousands of sessions may wait in one process, and most of their runs end with text.
_NOTHING: Mapping[Any, Any] = MappingProxyType({})

# Number of prompts below which a session does not look for those that are over.
_FIRST_LOOK = 16


@final
@attrs.define
class RunOutput:
    """The output of one *run*, which is read as *output*; as plain JSON where that is None."""

    run: str
    output: Output[Any] | None
    # The text that was decoded last, and its value.
    _decoded: tuple[str, object] | None = attrs.field(default=None, init=False)

    def keep(self, text: str, value: object) -> None:
        """Keep the *value* of *text*, which its validator has seen."""
        self._decoded = text, value

    def reader(self, text: str, spec: OutputSpec) -> Callable[[], object]:
        """A function that gives the value of *text*: the one that its validator saw, or a new one."""
        if self._decoded is not None and self._decoded[0] == text:
            # Held by the function, since the next run has another `RunOutput`.
            value = self._decoded[1]
            return lambda: value
        return partial(_value, text, spec, self.output)


def _value(text: str, spec: OutputSpec, output: Output[Any] | None) -> object:
    # Imported here: a run that ends with text needs none of it.
    from ...performers.output import value_of  # noqa: PLC0415  # see above

    return value_of(text, spec, output)


@final
@attrs.define
class WantedOutputs:
    """
    The outputs that callers here named for the runs of a session.

    *known* has one for each name and shape: that of the agent, else the first. A run that another process
    began is read as that.
    """

    known: Mapping[OutputIdentity, Output[Any]] = _NOTHING
    # The outputs of prompts whose runs have not begun here, by prompt; one for each shape it was sent with.
    _prompts: dict[str, dict[OutputIdentity, Output[Any]]] | None = None
    # Number of prompts in `_prompts` at which `want` looks for those that are over.
    _enough: int = _FIRST_LOOK
    # The output of the latest run that began or went on here, or that a caller named it for.
    _latest: RunOutput | None = None

    @classmethod
    def of(cls, spec: OutputSpec | None, output: Output[Any] | None) -> WantedOutputs:
        """The *output* of an agent, by its *spec*; none for an agent whose runs end with text."""
        return cls() if spec is None or output is None else cls({spec.identity: output})

    def want(self, prompt: str, spec: OutputSpec, output: Output[Any], over: Over) -> None:
        """
        Read the output of the run of *prompt*, by its *spec*, as *output*.

        *over* is called where the number of prompts kept here has doubled, and so seldom: it returns those of
        the given prompts whose run began elsewhere, or that were taken back. Their outputs are forgotten.
        """
        prompts = self._prompts = {} if self._prompts is None else self._prompts
        if len(prompts) >= self._enough:
            for finished in over([*prompts]):
                del prompts[finished]
            self._enough = max(_FIRST_LOOK, 2 * len(prompts))
        prompts.setdefault(prompt, {})[spec.identity] = output
        self._know(spec, output)

    def begin(self, run: str, prompt: str, spec: OutputSpec | None) -> None:
        """Begin *run* with *prompt*: its output has this *spec*, or is text."""
        wanted = None if self._prompts is None else self._prompts.pop(prompt, None)
        # A session whose prompts have all begun keeps no dict.
        self._prompts = self._prompts or None
        if spec is not None:
            asked_for = None if wanted is None else wanted.get(spec.identity)
            output = self.known.get(spec.identity) if asked_for is None else asked_for
            self._latest = RunOutput(run, output)

    def read_as(self, run: str, spec: OutputSpec, output: Output[Any]) -> None:
        """Read the output of *run*, by its *spec*, as *output*."""
        self._know(spec, output)
        latest = self._latest
        # A value that its validator saw stays.
        if latest is None or (latest.run, latest.output) != (run, output):
            self._latest = RunOutput(run, output)

    def _know(self, spec: OutputSpec, output: Output[Any]) -> None:
        if spec.identity not in self.known:
            # A new dict: the session that this one was copied from may have the same one.
            self.known = {**self.known, spec.identity: output}

    def of_run(self, run: str, spec: OutputSpec) -> RunOutput:
        """The output of *run*, by its *spec*."""
        if self._latest is None or self._latest.run != run:
            self._latest = RunOutput(run, self.known.get(spec.identity))
        return self._latest
