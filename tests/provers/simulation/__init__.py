"""The world as a player: who takes part in random runs, what they tend to do, and what is watched."""
