"""
The state of a session that rests, held in few bytes until it is asked for.

Theory of operation. A process may hold thousands of sessions that wait for a person, or for the next prompt.
As objects, the state of even a short conversation takes 4 kB, most of it in objects that are alike in all of
them. As compressed bytes it takes a tenth. So a session that was left alone for a moment has its state
packed, and the next look at it unpacks it, which takes about as long as a step. Packed states stay in this
process: they are no form that is stored.
"""

from __future__ import annotations

import io
import pickle
import zlib
from functools import cache
from typing import cast, final

import attrs

from ...effects.config import Config, ModelSpec, SideEffect, ToolSpec
from ...effects.events import ModelFinished
from ...effects.history import CallPiece
from ...effects.messages import StopReason
from ...effects.usage import Usage
from ..core.machine import Machine
from ..journal.fold import SessionState

# Seconds after which a session that rests is packed: one that goes on at once need not be unpacked again.
PARK_AFTER = 0.1

# What is packed at most. A longer conversation is mostly text, of which a pack saves little for its time.
MOST_MESSAGES = 50
MOST_BYTES = 65_536


@final
@attrs.frozen
class Parked:
    """The packed state of a session, under the *config* of its agent, which is shared."""

    data: bytes
    config: Config

    @property
    def state(self) -> SessionState:
        """The state, as it was."""
        unpacked = zlib.decompressobj(zdict=_common()).decompress(self.data)
        return cast("SessionState", _Unpickler(unpacked, self.config).load())


def parked(state: SessionState, config: Config) -> Parked | None:
    """*state* in few bytes, in the session of an agent with *config*; None where it is not worth it."""
    machine = state.machine
    if machine is None or state.ends or len(machine.memory.history) > MOST_MESSAGES:
        return None
    try:
        plain = _pickled(state, config)
    except OverflowError:
        return None
    packed = zlib.compressobj(zdict=_common())
    return Parked(packed.compress(plain) + packed.flush(), config)


def _pickled(state: SessionState, config: Config) -> bytes:
    bounded = _Bounded()
    _Pickler(bounded, config).dump(state)
    return bytes(bounded.data)


@cache
def _common() -> bytes:
    """What most packed states have in common, the names of classes and fields: a state with a question."""
    tool = ToolSpec(name="tool", description="", side_effect=SideEffect.UNSAFE)
    config = Config(model=ModelSpec(name="model"), tools=(tool,))
    machine = Machine.start(config, "")
    machine.advance()
    (asked,), call = machine.state.open, CallPiece(0, "call_0", tool.name, "{}")
    machine.advance(
        ModelFinished(at=0.0, request=asked, stop=StopReason.TOOL_USE, usage=Usage(), pieces=(call,))
    )
    return _pickled(SessionState(machine=machine), config)


@final
class _Bounded:
    """Takes so many bytes and no more, so that a large file in a message costs no time."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes, /) -> int:
        """Take *data*."""
        if len(self.data) + len(data) > MOST_BYTES:
            raise OverflowError
        self.data += data
        return len(data)


@final
class _Pickler(pickle.Pickler):
    """Leaves out *config*, and what equals it: a journal that was read has one of its own."""

    def __init__(self, into: _Bounded, config: Config) -> None:
        super().__init__(into, pickle.HIGHEST_PROTOCOL)
        self._config = config

    def persistent_id(self, one: object) -> str | None:
        return "config" if type(one) is Config and one == self._config else None


@final
class _Unpickler(pickle.Unpickler):  # bytes that this process made, and never wrote anywhere
    """Puts *config* back."""

    def __init__(self, data: bytes, config: Config) -> None:
        super().__init__(io.BytesIO(data))
        self._config = config

    def persistent_load(self, _: object) -> Config:
        return self._config
