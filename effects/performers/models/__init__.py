"""Who asks models: a wire for each dialect, and the HTTP they have in common."""

from __future__ import annotations

from .http import HTTPModel
from .openai import OpenAIChat

__all__ = ["HTTPModel", "OpenAIChat"]
