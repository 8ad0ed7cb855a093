"""
A machine in every state and stage where it can rest, brought there by hand.

For what must hold wherever a run is, such as a change of settings or a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import attrs

from ..effects.config import Concurrency, Config, Gates, ModelSpec, OnLost, Policy, Steering, with_output
from ..effects.events import Approve, Deny, Failure
from ..effects.findings import Finding, PathFound
from ..effects.history import CallPiece, ReasoningPiece, TextPiece
from ..effects.hooks import Hook, HookAnswer, HookSpec
from ..effects.output import OutputSpec
from ..effects.permissions import Rule
from ..effects.usage import Usage
from .harness import TOOLS, MachineHarness, calls, config

# Feeds one event to a run.
Deed = Callable[[MachineHarness], object]

# A hook at each place, but at the end of a session.
HOOKS = tuple([HookSpec(name=hook.value, hook=hook) for hook in Hook if hook is not Hook.SESSION_END])

# A prompt long enough to be summarised.
LONG_PROMPT = "do it " * 200


def _hooked(*places: Hook, **settings: Any) -> Config:  # noqa: ANN401  # the fields of `Config`, which checks them
    return config(hooks=tuple([hook for hook in HOOKS if hook.hook in places]), **settings)


def _gates(gates: Gates) -> Config:
    return _hooked(Hook.PRE_TOOL_USE, policy=Policy(gates=gates, answer_within=60.0))


def _crowded(within: float | None = None) -> Config:
    return config(policy=Policy(concurrency=Concurrency.PARALLEL_READS, answer_within=within))


def _narrow(*hooks: Hook) -> Config:
    """A configuration with a small window."""
    return _hooked(*hooks, model=ModelSpec(name="wire:model", window=1_000))


_do = methodcaller


def _calls(*tools: str) -> Deed:
    return _do("say", "well", *calls(*tools))


_TALK = _do("stream", ReasoningPiece("hm", "proof"), TextPiece("well, "), CallPiece(0, "w", "note", '{"pa'))
_APPROVE = _do("decide", "write", Approve())
_CHANGE = _do("decide", "write", Approve(arguments='{"path": "b"}'))
_MIND = _do("answer", HookAnswer(context="mind the gap"))
_ASK = _do("answer", HookAnswer(verdict="ask", context="mind the gap"))
_FAIL = _do("fail", Failure.SERVER)
_INTERRUPT = _do("interrupt")
_STEER = _do("steer", "left")

_PLAIN = config()
# What `write` reaches is looked at, and asked about.
_LOOKS = config(
    tools=tuple([attrs.evolve(tool, paths=("path",)) if tool.name == "write" else tool for tool in TOOLS]),
    rules=(Rule(verdict="ask", tool="write", where=(("path", "a"),)),),
)
_FOUND = Finding(paths=(PathFound(argument="path", value="a", written=("a",), real=("a", "/w/a")),))
# An output that a class has the last word on, and one that is given by a tool.
_AN_INTEGER = OutputSpec(
    schema='{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}',
    wrapped=True,
    decoded=True,
)
_BY_TOOL = attrs.evolve(_AN_INTEGER, mode="tool")
_ASKS = config(policy=Policy(on_lost=OnLost.ASK))
_ADMITS = _hooked(Hook.USER_PROMPT_SUBMIT)
# The window is full, and the call is over that filled it.
_FILL = (_do("say", *calls("note"), usage=Usage(input=900)), _do("end", "note"))
_LOST = (_calls("write"), _APPROVE, _do("lose", "write"))

_WAYS: dict[str, tuple[Config, *tuple[Deed, ...]]] = {
    "thinking.reading": (config(instructions=("AGENTS.md",)),),
    "thinking.opening": (config(instructions=("AGENTS.md",), hooks=HOOKS), _do("read", "be brief")),
    "thinking.admitting": (_ADMITS,),
    "thinking.admitting, a steer": (_ADMITS, _MIND, _calls("note"), _STEER, _do("end", "note")),
    "thinking.retry": (_PLAIN, _FAIL),
    "thinking.decoding": (with_output(_PLAIN, _AN_INTEGER), _do("say", '{"value": 7}')),
    "thinking.ending": (_hooked(Hook.STOP), _do("say", "done")),
    "streaming": (_PLAIN, _TALK),
    "streaming, mail waits": (_PLAIN, _TALK, _STEER, _do("send", "more", "ann")),
    "streaming.stopping": (_PLAIN, _TALK, _INTERRUPT),
    "streaming.stopping, hurried": (_PLAIN, _TALK, _do("steer", "left", Steering.NOW)),
    "executing": (_PLAIN, _calls("look", "write")),
    "executing, unsafe": (_PLAIN, _calls("write"), _APPROVE),
    "executing, again": (_ASKS, *_LOST, _APPROVE),
    "executing, hooked": (_gates(Gates.HOOKS_FIRST), _calls("write")),
    "executing, vetted": (_gates(Gates.RULES_FIRST), _calls("write"), _CHANGE),
    "executing, allowed": (_crowded(), _calls("look", "write"), _APPROVE),
    "executing, reviewed": (_hooked(Hook.POST_TOOL_USE), _calls("note", "write"), _do("end", "note", "seen")),
    "executing, looked at": (_LOOKS, _calls("write")),
    "executing, looked at again": (_LOOKS, _calls("write"), _do("inspect", "write", _FOUND), _APPROVE),
    "executing, told to stop": (_PLAIN, _calls("note", "write"), _do("cancel", "note")),
    "executing.stopping": (_PLAIN, _calls("note", "write"), _INTERRUPT),
    "executing.stopping, steered": (_PLAIN, _calls("note", "write"), _STEER),
    "confirming": (_crowded(), _calls("look", "write", "peek")),
    "confirming, for a while": (_crowded(60.0), _calls("look", "write", "peek")),
    "confirming, heard": (_gates(Gates.HOOKS_FIRST), _calls("write"), _ASK),
    "confirming, lost": (_ASKS, *_LOST),
    "confirming.stopping": (_crowded(60.0), _calls("write", "peek"), _do("decide", "write", Deny())),
    "dispatching": (_PLAIN, _calls("send", "write")),
    "dispatching.stopping": (_PLAIN, _calls("send", "write"), _INTERRUPT),
    "compacting.consulting": (_narrow(Hook.PRE_COMPACT), *_FILL),
    "compacting.summary": (_narrow(), *_FILL, _do("stream", TextPiece("it was"))),
    "compacting.pausing": (_narrow(), *_FILL, _FAIL),
    "compacting.stopping": (_narrow(), *_FILL, _INTERRUPT),
    "executing, an output beside": (with_output(_PLAIN, _BY_TOOL), _calls("output", "note")),
    "done": (_PLAIN, _do("say", "done")),
}

# The names of all fixtures: the label of the state and, behind a comma, what is special.
PLACES = tuple(_WAYS)


def run_at(place: str) -> MachineHarness:
    """A run in the state *place*, one of `PLACES`."""
    settings, *deeds = _WAYS[place]
    run = MachineHarness(settings, LONG_PROMPT)
    for deed in deeds:
        deed(run)
    return run
