"""The batch of tool calls of one answer: one pure module per step of a call."""
