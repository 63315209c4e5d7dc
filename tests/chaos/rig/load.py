"""Clients with known answers: an open loop of requests, workflows among them, and functions that come and go."""
import dataclasses
import http.client
import itertools
import queue
import random
import threading
import time

import numpy as np

from harness import HttpError
from harness.client import infer_binary
from harness.networks import scale, tally

from .history import ANSWERED, REFUSED, UNKNOWN, WRONG, Operation
from .site import GATEWAYS

SMALL = {f"times-{factor}": factor for factor in range(2, 8)}
WIDE, WIDE_FACTOR = "wide", 9  # of inputs beyond 64 KiB, which cross the network apart from the messages
TALLY = "tally"  # of a state, which counts its runs
# Deployed before the first fault: an answer that says that one of them is missing, or that a request is bad, is wrong.
KNOWN = {*SMALL, WIDE, TALLY}
WORKFLOW = b"""
name: chain
inputs:
  x: {type: FP32, shape: [-1, 4]}
steps:
  - {name: first, function: times-2, inputs: {x: x}}
  - {name: second, function: times-3, inputs: {x: first.y}}
outputs: {y: second.y}
"""
WORKFLOW_FACTOR = 6
TRY_SECONDS, PATIENCE_SECONDS = 5.0, 60.0
CLIENTS = 48  # requests under way; beyond, arrivals wait, and the report says how late they were
KEPT_OF = 4   # of so many churned functions one stays for good


class Wrong(Exception):
    pass


class Caller:
    """One client, which asks two gateways in turn and honours Retry-After, until it is answered or gives up."""

    def __init__(self, site, history):
        self.site, self.history = site, history
        self.turn = itertools.count()

    def ask(self, kind, key, call, once=False):
        """call(client) -> raises HttpError, OSError or Wrong. `once`: what no answer came to is UNKNOWN, not tried again."""
        began, tries, trouble = time.monotonic(), 0, ""
        while True:
            gateway = GATEWAYS[next(self.turn) % len(GATEWAYS)]
            tries += 1
            try:
                call(self.site.http(gateway))
                return self._end(kind, key, began, ANSWERED, tries, trouble)
            except Wrong as wrong:
                return self._end(kind, key, began, WRONG, tries, str(wrong))
            except HttpError as error:
                trouble, pause = f"{error.code}: {error.answer.body[:200].decode(errors='replace')}", 0.02
                if error.code not in (503, 507) and key in KNOWN:
                    return self._end(kind, key, began, WRONG, tries, trouble)
                if error.code in (400, 409, 507) and kind in ("deploy", "remove"):
                    return self._end(kind, key, began, REFUSED, tries, trouble)
                if error.code == 503:
                    pause = min(float(error.answer.headers.get("Retry-After", 0)), 0.25)
            except (OSError, http.client.HTTPException) as error:
                trouble, pause = f"{type(error).__name__}: {error}", 0.02
            self.history.failed_try(kind, gateway, trouble)
            if once or time.monotonic() - began > PATIENCE_SECONDS:
                return self._end(kind, key, began, UNKNOWN, tries, trouble)
            time.sleep(pause)  # as a client does between two tries

    def _end(self, kind, key, began, outcome, tries, trouble):
        operation = Operation(kind, key, began, time.monotonic(), outcome, tries, trouble)
        self.history.add(operation)
        return operation

    # --- one request of each sort ---

    def small(self, function, factor, value, once=False):
        x = np.array([[value, value + 1, value + 2, value + 3]], np.float32)

        def call(client):
            answer = client.ask(function, {"x": x}, timeout=TRY_SECONDS).good()
            got = answer.json["outputs"][0]["data"]
            if got != (factor * x).reshape(-1).tolist():
                raise Wrong(f"{function} of {value}: {got}")
        return self.ask("infer", function, call, once)

    def wide(self, rows, seed):
        x = np.random.default_rng(seed).standard_normal((rows, 1024), dtype=np.float32)

        def call(client):
            shape, data = infer_binary(client, WIDE, {"x": x}, timeout=TRY_SECONDS)["y"]
            if shape != [rows, 1024] or data != (np.float32(WIDE_FACTOR) * x).tobytes():
                raise Wrong(f"{WIDE} of {rows} rows, seed {seed}")
        return self.ask("infer", WIDE, call)

    def run(self, value):
        """One submission; without an answer the run may have been computed, so it is not submitted again."""
        x = np.array([[value, 1, 2, 3]], np.float32)

        def call(client):
            got = client.ask("chain", {"x": x}, timeout=PATIENCE_SECONDS).good().json["outputs"][0]["data"]
            if got != (WORKFLOW_FACTOR * x).reshape(-1).tolist():
                raise Wrong(f"chain of {value}: {got}")
        return self.ask("run", value, call, once=True)


def deploy_all(site):
    client = site.http(GATEWAYS[0])
    for name, factor in SMALL.items():
        client.deploy(name, scale(factor)).good()
    client.deploy(WIDE, scale(WIDE_FACTOR, 1024)).good()
    client.deploy(TALLY, tally(), "?state=s%3Dt").good()
    client.call("POST", "/v2/troupe/workflows", WORKFLOW).good()


class OpenLoop:
    """Arrivals at seeded times, whether or not the earlier requests have been answered. start() .. stop()."""

    def __init__(self, site, history, rate, seed):
        self.caller, self.rate = Caller(site, history), rate
        self.random = random.Random(f"load {seed}")
        self.due, self.late, self.offered = queue.Queue(), 0.0, 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]
        self._arrivals = threading.Thread(target=self._arrive, daemon=True)

    def start(self):
        for thread in (*self._threads, self._arrivals):
            thread.start()
        return self

    def _arrive(self):
        due = time.monotonic()
        for number in itertools.count(1):
            due += self.random.expovariate(self.rate)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                break
            self.offered += 1
            self.due.put((due, number, self.random.random(), self.random.randrange(1 << 30)))
        for _ in self._threads:
            self.due.put(None)

    def _client(self):
        while (arrival := self.due.get()) is not None:
            due, number, sort, seed = arrival
            self.late = max(self.late, time.monotonic() - due)
            if sort < 0.08:
                self.caller.run(number)  # a number that is exact as a float and that no other run has
            elif sort < 0.2:
                self.caller.wide(17 + seed % 48, seed)
            else:
                function = sorted(SMALL)[seed % len(SMALL)]
                self.caller.small(function, SMALL[function], seed % 1000)

    def stop(self):
        """Ends when every request under way has ended."""
        self._stop.set()
        for thread in (self._arrivals, *self._threads):
            thread.join(PATIENCE_SECONDS + 30)
            assert not thread.is_alive(), "a client hangs: its request does not end"


class Tally:
    """One client that adds one after the other to the state of a function. The state says how many runs have counted."""

    @dataclasses.dataclass
    class Answer:
        at: float
        count: int   # the state, as the answer says
        doubts: int  # tries since the answer before this one that were not answered: each may have counted

    def __init__(self, site, history, every=0.1):
        self.caller, self.every = Caller(site, history), every
        self.answers, self._doubts = [], 0  # once it is stopped, the caller's
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def _run(self):
        while not self._stop.wait(self.every):
            self.add()

    def add(self):
        """Adds one; the operation."""
        def call(client):
            self._doubts += 1
            answer = client.ask(TALLY, {"x": np.ones((1, 1), np.float32)}, timeout=TRY_SECONDS)
            self._doubts -= 1
            count = answer.good().json["outputs"][0]["data"][0] / 2
            self.answers.append(self.Answer(time.monotonic(), int(count), self._doubts))
            self._doubts = 0
        return self.caller.ask("tally", TALLY, call)

    def stop(self):
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS + 30)
        assert not self._thread.is_alive(), "a client hangs: its request does not end"


class Churn:
    """One function after the other is deployed, called, and removed again, but for every fourth. Each deployment is tried
    once: a function whose deployment was neither acknowledged nor refused may be there or not. A removal is tried until it
    is acknowledged."""

    def __init__(self, site, history, seed, every=1.0):
        self.caller, self.every, self.live = Caller(site, history), every, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def _run(self):
        for number in itertools.count():
            if self._stop.wait(self.every):
                return
            name = f"churn-{number}"

            def deploy(client, factor=number + 100, name=name):
                client.call("POST", f"/v2/troupe/functions/{name}", scale(factor), timeout=PATIENCE_SECONDS).good()
            done = self.caller.ask("deploy", name, deploy, once=True)
            if done.outcome == ANSWERED:
                self.caller.small(name, number + 100, number)
                if number % KEPT_OF:
                    self.live.append(name)
            if len(self.live) > 2:
                self.remove(self.live.pop(0))

    def remove(self, name):
        tries = itertools.count(1)

        def call(client):
            first = next(tries) == 1
            answer = client.call("DELETE", f"/v2/troupe/functions/{name}", timeout=TRY_SECONDS)
            if answer.code != 404:
                answer.good()
            elif first:  # else an earlier try of ours had removed it
                raise Wrong(f"{name} was acknowledged and is not there")
        self.caller.ask("remove", name, call)

    def stop(self):
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS * 3)
        assert not self._thread.is_alive(), "a deployment does not end"
