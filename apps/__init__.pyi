from .absurd.turn_queue import TurnQueue as TurnQueue
from .absurd.worker import AbsurdWorker as AbsurdWorker
from .hosts.singleton import Singleton as Singleton
from .restate.restate_store import RestateStore as RestateStore
from .restate.worker import RestateWorker as RestateWorker
from .server.app import AgentServer as AgentServer, create_app as create_app
from .server.limits import ServerLimits as ServerLimits
