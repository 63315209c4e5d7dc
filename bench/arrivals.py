"""The times and functions of requests: bursts as in StreamBox's load, popularity by Torpor's trace, by seed."""
import random

SLOT = 0.25  # seconds for one number of the load, so that its bursts last 2 to 5 s
CALM_SLOTS = 3  # the trace begins with a few calm slots before its first burst


def read(shared):
    """(load by slot, counts by function and minute); None without the shared traces."""
    load, samples = shared / "traces" / "streambox" / "bursty-load.txt", shared / "traces" / "torpor" / "samples.csv"
    if not load.exists() or not samples.exists():
        return None
    rows = [line.split(",") for line in samples.read_text().split()[1:]]
    # The last column is of a minute that is not whole in the trace.
    return [int(number) for number in load.read_text().split()], [[int(n) for n in row[1:-1]] for row in rows]


def arrivals(traces, functions, rate, seconds, seed):
    """[(seconds from the start, function)], `rate` per second on average; within a slot they are a Poisson process."""
    load, counts = traces
    source = random.Random(seed)
    rows = [counts[i % len(counts)] for i in source.sample(range(len(functions)), len(functions))]
    slots = load[CALM_SLOTS:CALM_SLOTS + max(1, round(seconds / SLOT))]
    mean = sum(slots) / len(slots)
    result = []
    for i, number in enumerate(slots):
        # A slot stands for a minute of the popularity, so that the same functions have many requests for a while.
        minute = i // 4 % len(counts[0])
        weights = [1 + row[minute] for row in rows]
        at, end = i * SLOT, (i + 1) * SLOT
        while (at := at + source.expovariate(rate * number / mean)) < end:
            result.append((at, source.choices(functions, weights)[0]))
    return result
