"""The rules the handlers share. Each takes values and gives values; none knows a state or a context."""
