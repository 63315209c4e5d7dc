"""Waiting for conditions. A test never sleeps for a time that somebody guessed: it waits until something is true."""
import time

# A busy machine of two cores is many times slower than an idle one; a condition that holds ends the wait at once.
DEADLINE = 60.0


def eventually(condition, what, seconds=DEADLINE):
    """The first true value of condition(). AssertionError says what was waited for, and what was seen last."""
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(0.02)
