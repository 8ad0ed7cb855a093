"""Rules: values in, values out. What several states decide by, and nothing that is a state's own."""

# A rule knows no state, no event and no draft. So it can be tested with a table of values, and a performer
# or an app may use it to foretell what the machine will do. What needs to add an effect is no rule, and
# belongs to the module of the state that adds it.
