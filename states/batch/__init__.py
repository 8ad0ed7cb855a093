"""The batch of tool calls of one answer: one pure module for each part of a call's way."""

# `step` is the only way in: an event comes, one call changes, then all that may go on does. `answers` has
# what came back, `permission` what stands before a start, `start` the start, `settle` every way to a
# result. `batch` has the values. They import each other from the last to the first and never back.
