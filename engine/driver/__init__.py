"""The asyncio driver: performs effects and feeds back what happened. It decides nothing."""
