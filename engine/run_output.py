"""The output that an agent's runs come to: how each of its models is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..effects import CallModel, OutputMode, OutputSpec
from ..effects.config import NO_CHOICE
from ..performers.models.router import DEFAULT_WIRE, wire_of

if TYPE_CHECKING:
    from ..effects import Config
    from ..performers.output import Output
    from .agent import Agent


def output_spec(agent: Agent[Any, Any], config: Config, output: Output[Any]) -> OutputSpec:
    """*output* as the loop knows it, with the way in which each of *agent*'s models in *config* is asked."""
    # A process that wants text makes no schemas.
    from ..performers.models.native_output import strict_form, takes_schema  # noqa: PLC0415  # see above
    from ..performers.output import form_of, spec_of  # noqa: PLC0415  # see above

    default, form = wire_of(agent.model.name) or DEFAULT_WIRE, form_of(output)
    # Some providers take unions inside of an object only, and say so in no page.
    strict = None if form.is_union else strict_form(form.schema)
    modes: dict[str, OutputMode] = {}
    for spec in (config.model, *config.models):
        prefix = wire_of(spec.name) or default
        # A host that asks models itself says nothing of what they take.
        ours = CallModel not in agent.performers
        if ours and strict and takes_schema(spec.name, prefix, agent.base_url if prefix == default else None):
            modes[spec.name] = OutputMode.NATIVE
        elif spec.tool_choice == NO_CHOICE:
            modes[spec.name] = OutputMode.PROMPTED
    return spec_of(output, modes, strict)
