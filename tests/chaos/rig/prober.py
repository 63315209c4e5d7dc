"""Clients that ask for certain functions from a moment on, as fast as they are answered, to learn when each is served again."""
import threading
import time

from .history import ANSWERED
from .load import SMALL, Caller


class Prober:
    """One thread a function; start() .. wait(). first[function]: seconds from start() to the end of its first answer."""

    def __init__(self, site, history, functions):
        self.caller = Caller(site, history)
        self.first = {}
        self._threads = [threading.Thread(target=self._ask, args=(name,), daemon=True) for name in functions]

    def start(self):
        self.began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def _ask(self, function):
        operation = self.caller.small(function, SMALL[function], 7)
        if operation.outcome == ANSWERED:
            self.first[function] = operation.ended - self.began

    def wait(self):
        """{function: seconds}"""
        for thread in self._threads:
            thread.join()
        return self.first
