"""Looks at the cluster all the time, as an operator's dashboard would: when each member's state changed, as a client sees it."""
import threading
import time

EVERY = 0.025


class Watch:
    """One thread. changes(): [(time, member, state)]; a GPU is "node-0/1". `away` means that the manager could not be reached."""

    def __init__(self, site, history):
        self.site, self.history = site, history
        self._states, self._changes, self._lock = {}, [], threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._stop.set()
        self._thread.join(30)

    def _run(self):
        while not self._stop.wait(EVERY):
            status = self.site.status()
            self._see("manager", "ALIVE" if status is not None else "AWAY")
            for name, member in (status or {}).items():
                self._see(name, member["state"].removeprefix("MEMBER_"))
                for gpu in member["gpus"]:
                    self._see(f"{name}/{gpu['index']}", gpu["state"])

    def _see(self, member, state):
        if self._states.get(member) == state:
            return
        self._states[member] = state
        with self._lock:
            self._changes.append((time.monotonic(), member, state))
        self.history.mark("state", member, state)

    def changes(self, member, since):
        """[(time, state)] of one member."""
        with self._lock:
            return [(at, state) for at, name, state in self._changes if name == member and at >= since]

    def first(self, member, since, states):
        """When the member was first seen in one of the states, or None."""
        return next((at for at, state in self.changes(member, since) if state in states), None)
