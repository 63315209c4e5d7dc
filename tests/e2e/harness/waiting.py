"""Waiting for conditions. A test never sleeps for a guessed time: it waits until a condition is true."""
import time

# A busy machine of two cores is many times slower than an idle one; the wait ends as soon as the condition holds.
DEADLINE = 60.0


def eventually(condition, what, seconds=DEADLINE):
    """The first true value of condition(). An AssertionError says which condition did not come true, and its last value."""
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds:g} s this is not true: {what}; last seen: {seen!r}")
        time.sleep(0.02)
