"""What every end-to-end test needs: daemons as child processes, a client of their HTTP API, small networks."""
from .case import E2eTest, main
from .client import Client, HttpError
from .daemon import Daemon, StartFailed
from .load import Load
from .waiting import eventually

__all__ = ["Client", "Daemon", "E2eTest", "HttpError", "Load", "StartFailed", "eventually", "main"]
