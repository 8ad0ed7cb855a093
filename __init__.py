"""
turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions.

Here is what most agents need. The rooms have the rest: `turnwheel.effects` all words, `turnwheel.states` the
states, `turnwheel.engine` sessions and journals, `turnwheel.performers` models, tools and stores,
`turnwheel.projections` other vocabularies, `turnwheel.settings`, `turnwheel.testing`, `turnwheel.diagrams`.
"""

from __future__ import annotations

# pytest imports this file under the name of the checkout, too, so the import is absolute.
from turnwheel.lazy import exports

__getattr__, __dir__, __all__ = exports("turnwheel", __file__)
