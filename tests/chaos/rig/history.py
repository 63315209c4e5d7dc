"""What the clients did and how they were answered. The checks learn from it alone what was acknowledged."""
import dataclasses
import threading
import time

ANSWERED, REFUSED, UNKNOWN, WRONG = "answered", "refused", "unknown", "wrong"


@dataclasses.dataclass
class Operation:
    """One operation of a client, with all its tries. Times: seconds of the monotonic clock."""
    kind: str     # infer, run, deploy, remove
    key: object   # infer: the function; run: its input; deploy, remove: the name
    began: float
    ended: float
    outcome: str
    tries: int
    trouble: str = ""  # why its last unsuccessful try failed


class History:
    """The list of operations and marks; it is thread-safe."""

    def __init__(self):
        self.start = time.monotonic()
        self._lock = threading.Lock()
        self._operations, self._failed_tries, self._marks = [], [], []

    def add(self, operation):
        with self._lock:
            self._operations.append(operation)

    def failed_try(self, kind, gateway, trouble):
        with self._lock:
            self._failed_tries.append((time.monotonic(), kind, gateway, trouble))

    def mark(self, kind, member, text=""):
        """Adds a mark of the timeline: a fault, its end, a change of a member's state."""
        with self._lock:
            self._marks.append((time.monotonic(), kind, member, text))

    def operations(self, *kinds):
        with self._lock:
            return [operation for operation in self._operations if not kinds or operation.kind in kinds]

    def failed_tries(self, begin=0.0, end=float("inf")):
        with self._lock:
            return [entry for entry in self._failed_tries if begin <= entry[0] <= end]

    def marks(self):
        with self._lock:
            return list(self._marks)
