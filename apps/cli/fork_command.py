"""`turnwheel fork`: a copy of a session, from where it stands or from one of its steps."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from ...effects.events import Approve, Deny
from ...effects.permissions import PermissionMode
from ...effects.records import SetMode, SetModel
from ...engine.inspect.fork import Replacement
from ...engine.session.session import Session
from ..terminal.sanitize import clean
from .options import (
    MODE,
    store,
    text_of,
    with_all,
)
from .remote_commands import SESSION
from .remote_session import with_session
from .run_options import default_store

REPLACEMENT_OPTIONS = ("model", "mode", "answer", "approve", "deny")
"""The options of which one says what happens in place of a step."""

_in_place = with_all(
    click.option("--at", metavar="N", type=click.IntRange(min=0), help="With what came before step N only."),
    click.option("--model", metavar="NAME", help="From step N on ask this model."),
    click.option("--mode", type=MODE, help="From step N on this happens to its calls."),
    click.option("--answer", metavar="TEXT", help="What was said, or came back, in place of step N."),
    click.option("--approve", is_flag=True, help="Yes to the question that step N answers."),
    click.option("--edit", metavar="JSON", help="With --approve: let it run with these arguments."),
    click.option("--deny", is_flag=True, help="No to it."),
    click.option("--message", "-m", metavar="TEXT", help="With --deny: why; the model reads it."),
)


@click.command(short_help="Make a copy of a session that goes its own way.")
@SESSION
@click.argument("new", metavar="[NEW]", required=False)
@_in_place
@store
def fork(store: Path, session: str, new: str | None, at: int | None, **other: Any) -> None:  # noqa: ANN401  # as click has it
    """
    Make a session of its own that begins with all that was said in session ID; call it NEW.

    With --at it begins with what came before a step, which `turnwheel replay` numbers, and something else may
    happen in its place. A run that was under way there is gone on with by `turnwheel run --resume`.
    """
    instead = _replacement(at, other)

    async def act(there: Session) -> tuple[str, bool]:
        async with await there.fork(new, at=at, instead=instead) as made:
            return made.id, made.unfinished

    made, unfinished = with_session(store, session, act)
    step = "" if at is None else f" at step {at}"
    click.echo(clean(f"forked {session}{step} into {made}"))
    if unfinished:
        more = [] if store == default_store() else ["--store", str(store)]
        click.echo(clean(f"go on with: {shlex.join(['turnwheel', 'run', '--resume', made, *more])}"))


def _replacement(at: int | None, options: dict[str, Any]) -> Replacement | None:
    """What happens in place of step *at*, as *options* say; raises `click.UsageError` where they cannot."""
    told = [name for name in REPLACEMENT_OPTIONS if options[name]]
    problem = ""
    if len(told) > 1:
        problem = f"one thing takes the place of a step; give one of --{' and --'.join(told)}"
    elif told and at is None:
        problem = f"--{told[0]} takes the place of a step; say of which with --at"
    elif options["message"] is not None and told != ["deny"]:
        problem = "--message says why something is denied; give --deny, too"
    elif options["edit"] is not None and told != ["approve"]:
        problem = "--edit changes what is allowed; give --approve, too"
    if problem:
        raise click.UsageError(problem)
    made: dict[str, Any] = {
        "model": lambda: SetModel(model=options["model"]),
        "mode": lambda: SetMode(mode=PermissionMode(options["mode"])),
        "answer": lambda: text_of(options["answer"]),
        "approve": lambda: Approve(arguments=options["edit"] or ""),
        "deny": lambda: Deny(message=options["message"] or ""),
    }
    instead: Replacement | None = made[told[0]]() if told else None
    return instead
