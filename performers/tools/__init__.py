"""Tools: functions that a model can call, what runs them, and those that come along."""
