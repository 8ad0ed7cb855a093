"""Bytes that nobody sends, everybody who reads such, and what is held against what they read."""
