"""Load: a closed loop that finds the capacity, and seeded bursts that arrive whether or not the cluster is ready."""
import collections
import queue
import random
import threading
import time

from client import Client

CONNECTIONS = 16
BURST_SECONDS = 1.0  # mean length of a burst, and of the calm after it


class Tally:
    """The outcomes of the requests by function. One lock is enough, since the rates are small."""

    def __init__(self):
        self.lock = threading.Lock()
        self.latencies = collections.defaultdict(list)
        self.failed = collections.Counter()
        self.wrong = collections.Counter()
        self.retried = 0
        self.complaints = []

    def add(self, name, seconds, failure, is_right):
        with self.lock:
            self.latencies[name].append(seconds)
            self.failed[name] += failure is not None
            self.wrong[name] += failure is None and not is_right
            if failure is not None and len(self.complaints) < 5:
                self.complaints.append(f"{name}: {failure}")

    def count(self):
        with self.lock:
            return sum(len(each) for each in self.latencies.values())


def choices(functions, seed):
    """An endless, seeded sequence of (function, index of its input)."""
    source = random.Random(seed)
    shares = [function.share for function in functions]
    while True:
        function = source.choices(functions, shares)[0]
        yield function, source.randrange(len(function.inputs))


def ask(client, function, index, due, tally):
    failure, right = None, False
    try:
        right = function.is_right(index, client.infer(function.name, function.inputs[index]))
    except Exception as error:  # any error that keeps a client from its answer is a failed request
        failure = error
    tally.add(function.name, time.monotonic() - due, failure, right)


def closed_loop(url, functions, seconds, clients, seed=1):
    """Sends requests as fast as `clients` connections can. Returns requests per second and the tally."""
    tally, lock, source = Tally(), threading.Lock(), choices(functions, seed)
    end = time.monotonic() + seconds

    def run():
        client = Client(url)
        while time.monotonic() < end:
            with lock:
                function, index = next(source)
            ask(client, function, index, time.monotonic(), tally)
        client.close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally.count() / seconds, tally


def bursty_arrivals(rate, seconds, seed):
    """Seconds from the start at which requests arrive: bursts at twice `rate`, and calm of the same length."""
    source, now, arrivals = random.Random(seed), 0.0, []
    while now < seconds:
        burst = source.uniform(0.5, 1.5) * BURST_SECONDS
        at = now
        while (at := at + source.expovariate(2 * rate)) < min(now + burst, seconds):
            arrivals.append(at)
        now += 2 * burst
    return arrivals


class Replay:
    """Open loop: latency counts from the moment a request was due, so that a stall cannot hide."""

    def __init__(self, url, functions, arrivals, seed=2):
        self.tally, self.arrivals = Tally(), arrivals
        self.due = queue.Queue()
        self.begin = time.monotonic()
        self.source = choices(functions, seed)
        self.clients = [Client(url) for _ in range(CONNECTIONS)]
        self.threads = [threading.Thread(target=self._serve, args=(client,), daemon=True) for client in self.clients]
        self.threads.append(threading.Thread(target=self._feed, daemon=True))
        for thread in self.threads:
            thread.start()

    def _feed(self):
        for at in self.arrivals:
            time.sleep(max(0, self.begin + at - time.monotonic()))
            self.due.put((*next(self.source), self.begin + at))
        for _ in self.clients:
            self.due.put(None)

    def _serve(self, client):
        while (item := self.due.get()) is not None:
            function, index, due = item
            ask(client, function, index, due, self.tally)
        client.close()

    def finish(self, patience):
        """Waits for the last answers; what is unanswered then counts as failed. Returns the tally."""
        end = time.monotonic() + patience
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        self.tally.retried = sum(client.retries for client in self.clients)
        unanswered = len(self.arrivals) - self.tally.count()
        for _ in range(unanswered):
            self.tally.add("(unanswered)", patience, "no answer", False)
        return self.tally
