"""Sessions on Restate: workers that it calls, and a store for other processes. Needs the extra `restate`."""
