"""What a journal tells afterwards: replay, fork, bisect, explain, costs, export."""
