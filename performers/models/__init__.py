"""Who asks models: a wire for each dialect, the HTTP they have in common, and who chooses among them."""

from __future__ import annotations

from .anthropic import AnthropicMessages
from .http import Endpoint, HTTPModel, Timeouts
from .openai import OpenAIChat
from .router import Models, wire_of

__all__ = ["AnthropicMessages", "Endpoint", "HTTPModel", "Models", "OpenAIChat", "Timeouts", "wire_of"]
