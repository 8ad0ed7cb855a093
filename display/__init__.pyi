from .rendering import history_lines as history_lines, line_of as line_of, state_line as state_line
