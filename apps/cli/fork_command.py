"""`turnwheel fork`: copy a session, whole or up to one of its steps, with another event in its place."""

from __future__ import annotations

from typing import Any

import click

from ...effects.events import Approve, Deny
from ...effects.permissions import PermissionMode
from ...effects.records import SetMode, SetModel
from ...engine.inspect.fork import Replacement
from ...engine.session.session import Session
from ...performers.stores.place import StorePlace
from ..terminal.sanitize import clean
from .options import (
    MODE,
    text_of,
    with_all,
)
from .remote_commands import SESSION
from .remote_session import resume_command, with_session
from .stores import store

REPLACEMENT_OPTIONS = ("model", "mode", "answer", "approve", "deny")
"""The options that replace a step; at most one of them counts."""

_in_place = with_all(
    click.option("--at", metavar="N", type=click.IntRange(min=0), help="Copy only the steps before N."),
    click.option("--model", metavar="NAME", help="Use this model from step N on."),
    click.option("--mode", type=MODE, help="Permission mode from step N on."),
    click.option("--answer", metavar="TEXT", help="The text, or the answer, in place of step N."),
    click.option("--approve", is_flag=True, help="Approve the question of step N."),
    click.option("--edit", metavar="JSON", help="With --approve: run it with these arguments."),
    click.option("--deny", is_flag=True, help="Deny the question of step N."),
    click.option("--message", "-m", metavar="TEXT", help="With --deny: the reason; the model reads it."),
)


@click.command()
@SESSION
@click.argument("new", metavar="[NEW]", required=False)
@_in_place
@store
def fork(store: StorePlace, session: str, new: str | None, at: int | None, **other: Any) -> None:  # noqa: ANN401  # as click has it
    """
    Copy session ID as session NEW.

    With --at the copy has only the steps before N, which `turnwheel replay` numbers; another event may take
    the place of step N. `turnwheel run --resume` continues an unfinished run of the copy.
    """
    instead = _replacement(at, other)

    async def act(there: Session) -> tuple[str, bool]:
        async with await there.fork(new, at=at, instead=instead) as made:
            return made.id, made.unfinished

    made, unfinished = with_session(store, session, act)
    step = "" if at is None else f" at step {at}"
    click.echo(clean(f"forked {session}{step} into {made}"))
    if unfinished:
        click.echo(clean(f"go on with: {resume_command(store, made)}"))


def _replacement(at: int | None, options: dict[str, Any]) -> Replacement | None:
    """The event in place of step *at*, from *options*; raises `click.UsageError` if they do not fit."""
    given = [name for name in REPLACEMENT_OPTIONS if options[name]]
    problem = ""
    if len(given) > 1:
        problem = f"only one option can replace a step; give one of --{' and --'.join(given)}"
    elif given and at is None:
        problem = f"--{given[0]} replaces a step; give its number with --at"
    elif options["message"] is not None and given != ["deny"]:
        problem = "--message is for --deny; give both"
    elif options["edit"] is not None and given != ["approve"]:
        problem = "--edit is for --approve; give both"
    if problem:
        raise click.UsageError(problem)
    made: dict[str, Any] = {
        "model": lambda: SetModel(model=options["model"]),
        "mode": lambda: SetMode(mode=PermissionMode(options["mode"])),
        "answer": lambda: text_of(options["answer"]),
        "approve": lambda: Approve(arguments=options["edit"] or ""),
        "deny": lambda: Deny(message=options["message"] or ""),
    }
    instead: Replacement | None = made[given[0]]() if given else None
    return instead
