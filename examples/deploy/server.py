"""The server: it takes what comes over HTTP, and queues turns for the workers."""

import os

from agents import agents

from turnwheel.apps import TurnQueue, create_app
from turnwheel.performers import PostgresStore

dsn = os.environ["DATABASE_URL"]
store = PostgresStore(dsn)
tokens = {os.environ["SERVER_TOKEN"]: "default"}
app = create_app(agents, store, turns=TurnQueue(dsn, agents, store), tokens=tokens)
