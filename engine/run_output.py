"""The output that an agent's runs come to: how each of its models is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..effects import OutputMode, OutputSpec
from ..effects.config import NO_CHOICE
from ..performers.models.router import DEFAULT_WIRE, wire_of

if TYPE_CHECKING:
    from ..effects import Config
    from ..performers.output import Output


def output_spec(config: Config, output: Output[Any], base_url: str | None, *, hosted: bool) -> OutputSpec:
    """
    *output* as the loop knows it, with the way in which each model of *config* is asked for it.

    *base_url* is where the first model is asked. *hosted*: the host asks models by its own code, which says
    nothing of what they take.
    """
    # A process that wants text makes no schemas.
    from ..performers.models.native_output import strict_form, takes_schema  # noqa: PLC0415  # see above
    from ..performers.output import form_of, spec_of  # noqa: PLC0415  # see above

    default, form = wire_of(config.model.name) or DEFAULT_WIRE, form_of(output)
    # Some providers take unions inside of an object only.
    strict = None if form.is_union else strict_form(form.schema)
    modes: dict[str, OutputMode] = {}
    for spec in (config.model, *config.models):
        prefix = wire_of(spec.name) or default
        url = base_url if prefix == default else None
        if strict and not hosted and takes_schema(spec.name, prefix, url):
            modes[spec.name] = OutputMode.NATIVE
        elif spec.tool_choice == NO_CHOICE:
            modes[spec.name] = OutputMode.PROMPTED
    return spec_of(output, modes, strict)
