"""
A machine in every state and stage where it can rest, brought there by hand.

For what must hold wherever a run is, such as a change of settings or a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from ..effects.config import Concurrency, Config, Gates, ModelSpec, OnLost, Policy, Steering
from ..effects.events import Approve, Deny, Failure
from ..effects.hooks import Hook, HookAnswer, HookSpec
from ..effects.pieces import CallPiece, ReasoningPiece, TextPiece
from ..effects.usage import Usage
from .harness import MachineHarness, calls, config

Deed = Callable[[MachineHarness], object]
"""Feeds one event to a run."""

HOOKS = tuple([HookSpec(name=hook.value, hook=hook) for hook in Hook if hook is not Hook.SESSION_END])
"""A hook at each place, but at the end of a session."""

LONG_PROMPT = "do it " * 200
"""A prompt long enough to be summarised."""


def _hooked(*places: Hook) -> Config:
    return config(hooks=tuple([hook for hook in HOOKS if hook.hook in places]))


def _gates(gates: Gates) -> Config:
    hooks = tuple([hook for hook in HOOKS if hook.hook is Hook.PRE_TOOL_USE])
    return config(hooks=hooks, policy=Policy(gates=gates, answer_within=60.0))


def _crowded(within: float | None = None) -> Config:
    return config(policy=Policy(concurrency=Concurrency.PARALLEL_READS, answer_within=within))


def _narrow(*hooks: Hook) -> Config:
    """A configuration with a small window."""
    specs = tuple([hook for hook in HOOKS if hook.hook in hooks])
    return config(model=ModelSpec(name="wire:model", window=1_000), hooks=specs)


def _calls(*tools: str) -> Deed:
    return lambda run: run.say("well", *calls(*tools))


def _fill(run: MachineHarness) -> None:
    """Fill the window, and end the call that filled it."""
    run.say(*calls("note"), usage=Usage(input=900))
    run.end("note")


def _talk(run: MachineHarness) -> None:
    run.stream(ReasoningPiece("hm", "proof"), TextPiece("well, "), CallPiece(0, "w", "note", '{"pa'))


_ASKS = Policy(on_lost=OnLost.ASK)
_UNSAFE: tuple[Deed, ...] = (_calls("write"), lambda run: run.decide("write", Approve()))
_LOST: tuple[Deed, ...] = (*_UNSAFE, lambda run: run.lose("write"))


_WAYS: dict[str, tuple[Config, tuple[Deed, ...]]] = {
    "thinking.reading": (config(instructions=("AGENTS.md",)), ()),
    "thinking.opening": (
        config(instructions=("AGENTS.md",), hooks=HOOKS),
        (lambda run: run.read("be brief"),),
    ),
    "thinking.admitting": (_hooked(Hook.USER_PROMPT_SUBMIT), ()),
    "thinking.admitting, a steer": (
        _hooked(Hook.USER_PROMPT_SUBMIT),
        (
            lambda run: run.answer(HookAnswer(context="mind the gap")),
            _calls("note"),
            lambda run: run.steer("left"),
            lambda run: run.end("note"),
        ),
    ),
    "thinking.retry": (config(), (lambda run: run.fail(Failure.SERVER),)),
    "thinking.ending": (_hooked(Hook.STOP), (lambda run: run.say("done"),)),
    "streaming": (config(), (_talk,)),
    "streaming, mail waits": (
        config(),
        (_talk, lambda run: run.steer("left"), lambda run: run.send("more", "ann")),
    ),
    "streaming.stopping": (config(), (_talk, MachineHarness.interrupt)),
    "streaming.stopping, hurried": (config(), (_talk, lambda run: run.steer("left", Steering.NOW))),
    "executing": (config(), (_calls("look", "write"),)),
    "executing, unsafe": (config(), _UNSAFE),
    "executing, again": (config(policy=_ASKS), (*_LOST, lambda run: run.decide("write", Approve()))),
    "executing, hooked": (_gates(Gates.HOOKS_FIRST), (_calls("write"),)),
    "executing, vetted": (
        _gates(Gates.RULES_FIRST),
        (_calls("write"), lambda run: run.decide("write", Approve(arguments='{"path": "b"}'))),
    ),
    "executing, allowed": (_crowded(), (_calls("look", "write"), lambda run: run.decide("write", Approve()))),
    "executing, reviewed": (
        _hooked(Hook.POST_TOOL_USE),
        (_calls("note", "write"), lambda run: run.end("note", "seen")),
    ),
    "executing, told to stop": (config(), (_calls("note", "write"), lambda run: run.cancel("note"))),
    "executing.stopping": (config(), (_calls("note", "write"), MachineHarness.interrupt)),
    "executing.stopping, steered": (config(), (_calls("note", "write"), lambda run: run.steer("left"))),
    "confirming": (_crowded(), (_calls("look", "write", "peek"),)),
    "confirming, for a while": (_crowded(60.0), (_calls("look", "write", "peek"),)),
    "confirming, heard": (
        _gates(Gates.HOOKS_FIRST),
        (_calls("write"), lambda run: run.answer(HookAnswer(verdict="ask", context="mind the gap"))),
    ),
    "confirming, lost": (config(policy=_ASKS), _LOST),
    "confirming.stopping": (
        _crowded(60.0),
        (_calls("write", "peek"), lambda run: run.decide("write", Deny())),
    ),
    "dispatching": (config(), (_calls("send", "write"),)),
    "dispatching.stopping": (config(), (_calls("send", "write"), MachineHarness.interrupt)),
    "compacting.consulting": (_narrow(Hook.PRE_COMPACT), (_fill,)),
    "compacting.summary": (_narrow(), (_fill, lambda run: run.stream(TextPiece("it was")))),
    "compacting.pausing": (_narrow(), (_fill, lambda run: run.fail(Failure.SERVER))),
    "compacting.stopping": (_narrow(), (_fill, MachineHarness.interrupt)),
    "done": (config(), (lambda run: run.say("done"),)),
}

PLACES = tuple(_WAYS)
"""The names of all fixtures: the label of the state and, behind a comma, what is special."""


def run_at(place: str) -> MachineHarness:
    """A run in the state *place*, one of `PLACES`."""
    settings, deeds = _WAYS[place]
    run = MachineHarness(settings, LONG_PROMPT)
    for deed in deeds:
        deed(run)
    return run
