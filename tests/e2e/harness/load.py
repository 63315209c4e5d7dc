"""Clients that keep sending requests while something breaks."""
import threading


class Load:
    """`threads` clients that call `ask` one request after the other until stop(). Each request either gives an answer that
    `ask` checked, or lands in `failures`."""

    def __init__(self, ask, threads=3):
        self.ask, self.failures = ask, []
        self._answered, self._stop, self._changed = 0, False, threading.Condition()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        while not self._stop:
            try:
                self.ask()
            except Exception as failure:  # with any error the request was not answered well
                self.failures.append(failure)
            with self._changed:
                self._answered += 1
                self._changed.notify_all()

    def wait(self, more):
        """Waits until so many more requests have ended."""
        with self._changed:
            goal = self._answered + more
            assert self._changed.wait_for(lambda: self._answered >= goal, 60), \
                f"{goal - self._answered} requests of {more} have not ended; failures: {self.failures[:3]}"

    def finish(self):
        """No request begins any more; those under way go on."""
        self._stop = True

    def stop(self):
        """The number of requests; AssertionError with the first failures, if there were any."""
        self._stop = True
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a request hangs"
        assert not self.failures, f"{len(self.failures)} of {self._answered} requests failed: {self.failures[:3]}"
        return self._answered
