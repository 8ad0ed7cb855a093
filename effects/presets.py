"""Policies by name: the ways of deciding of well-known kinds of agents, each as a whole."""

from __future__ import annotations

from .policy import Concurrency, Gates, OnDenial, OnMaxTokens, Policy, Steering

SDK = Policy(
    on_denial=OnDenial.GO_ON,
    on_max_tokens=OnMaxTokens.COMPACT_OVER_THRESHOLD,
    gates=Gates.RULES_FIRST,
    steering=Steering.WHEN_DONE,
)
"""
Of a coding agent behind an SDK: one tool at a time, rules before hooks, a denied call is an error like any.
"""

STEERED = Policy(on_denial=OnDenial.GO_ON, steering=Steering.AFTER_TOOL)
"""Of an agent that people talk to while it works: what they say comes before its next tool."""

CONFIRMED = Policy(
    on_denial=OnDenial.SKIP_REST,
    concurrency=Concurrency.PARALLEL_READS,
    answer_within=300.0,
    compact_at=0.7,
)
"""
Of an agent in a chat window: reads side by side; a no, or no answer within five minutes, goes back to the
model at once.
"""

SINGLETON = Policy(on_denial=OnDenial.INTERRUPT, coalesce=2.0)
"""Of one agent that many channels feed: messages in quick succession are one, a no ends the turn."""
