#!/usr/bin/python3
"""How functions follow their load, by the real daemons in timed mode, and what it costs the manager.

usage: autoscale.py [--build DIR] [--rounds N] [--only PART ...]

Two daemons with two virtual GPUs each; a run takes 20 ms on 12 % of the SMs and more. The load of a function whose quota_request
is auto steps from 1x to 4x.

  instance_ready_ms/host-copy   from the step until a GPU on which the function owned nothing runs a request of it, both nodes
                                having a host copy
  instance_ready_ms/no-copy     the same until a GPU of the second node runs one, which has no host copy when the load steps to more than
                                the first node's GPUs can run
  moves_failed_requests         requests that failed while a function came to own a part of a GPU and lost it, a thousand times
                                in turn; moves_requests: how many came meanwhile
  manager_tick_ms/FUNCTIONS     a pulse of the manager in which the autoscaler looks at so many functions, a twentieth of which
                                have requests, on 50 nodes of 8 GPUs; _max: the longest, _placing: of those in which they got
                                their parts
"""
import json
import subprocess
import sys
import threading
import time
import urllib.request

from invoke import BODY, Site
from report import run_parts

RUN_MS = 20
SHARE = 12  # percent of the SMs
RATE = 16  # requests/s at 1x: a part of one GPU; four times as many are more than it can run
RATE_OF_NODE = 30  # four times as many are more than two GPUs can run
MOVES = 1000


class Pair(Site):
    """A daemon with every role and a node, with two GPUs each."""

    def __init__(self, build, replicas):
        super().__init__(build, [])
        self.replicas = replicas

    def __enter__(self):
        profile = self.home / "profile"
        profile.write_text(f"default {RUN_MS}ms {SHARE}%\n")
        options = ["--compute", "timed", "--profile", str(profile), "--gpus", "2", "--set", "measure=requests", "--set", "owning=always"]
        first = self._daemon("a", "--role", "all", "--http", "127.0.0.1:0", "--manager", "127.0.0.1:0", "--replicas",
                             str(self.replicas), *options)
        self.url = self._wait(first, r"gateway at http://[0-9.:]+").split()[-1]
        self.manager = self._wait(first, r"manager at [0-9.:]+").split()[-1]
        self._wait(first, "worker-ready", "log", times=2)
        self.options = []
        self.node_options = options
        return self

    def add_node(self):
        second = self._daemon("b", "--role", "node", "--manager", self.manager, *self.node_options)
        self._wait(second, "worker-ready", "log", times=2)

    def deploy(self, function, **sharing):
        query = "&".join(f"{key}={value}" for key, value in sharing.items())
        urllib.request.urlopen(f"{self.url}/v2/troupe/functions/{function}?{query}", self.noop_model(), 60).close()
        self.ask(function)

    def ask(self, function):
        urllib.request.urlopen(f"{self.url}/v2/models/{function}/infer", BODY.encode(), 60).close()

    def shell(self, *words):
        done = subprocess.run([str(self.build / "bin" / "troupe"), "--manager", self.manager, *words, "--json"], capture_output=True,
                              text=True)
        if done.returncode:
            raise SystemExit(f"autoscale.py: troupe {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def owned(self, function):
        record = self.shell("function", "show", function)["functions"][0]["record"]
        return {(place["node"], int(place.get("gpu", 0))) for place in record.get("places", [])}

    def running(self, function):
        """The GPUs that have a run of it."""
        return {(gpu["node"], int(gpu["gpu"].get("index", 0))) for gpu in self.shell("gpu", "list")["gpus"]
                if any(run["function"] == function for run in gpu.get("runs", []))}

    def load(self, function, rate, seconds):
        body = self.home / "body"
        body.write_text(BODY)
        return subprocess.Popen([str(self.build / "bin" / "http_load"), f"{self.url}/v2/models/{function}/infer", "--body", str(body),
                                 "--connections", "64", "--seconds", str(seconds), "--rate", str(rate)],
                                stdout=subprocess.PIPE, text=True)


def wait_for(what, seconds, why):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
    raise SystemExit(f"autoscale.py: after {seconds} s: {why}")


def finish(load):
    found = json.loads(load.communicate()[0])
    if load.returncode or found["failed"]:
        raise SystemExit(f"autoscale.py: requests failed: {found}")


def ready_ms(pair, rate, counts=lambda gpu: True):
    """Milliseconds from the step of the load until another GPU than before, which counts, has a run."""
    steady = pair.load("f", rate, 30)
    before = wait_for(lambda: pair.owned("f"), 15, "f owns nothing")
    time.sleep(5)  # what it owns is right for this load
    before = pair.owned("f")
    began = time.monotonic()
    step = pair.load("f", 3 * rate, 10)
    wait_for(lambda: any(map(counts, (pair.running("f") & pair.owned("f")) - before)), 20, "no other GPU has a run of f")
    took = 1000 * (time.monotonic() - began)
    finish(step)
    finish(steady)
    return took


def steps(report, arguments):
    with_copy = []
    for _ in range(arguments.rounds):
        with Pair(arguments.build, 2) as pair:
            pair.add_node()
            pair.deploy("f", sm_partition=100, quota_request="auto")
            with_copy.append(ready_ms(pair, RATE))
    report.add("instance_ready_ms/host-copy", with_copy, "ms")
    without = []
    for _ in range(arguments.rounds):
        with Pair(arguments.build, 1) as pair:
            pair.deploy("f", sm_partition=100, quota_request="auto")  # while the first node is alone
            pair.add_node()
            without.append(ready_ms(pair, RATE_OF_NODE, lambda gpu: gpu[0] == "b"))
    report.add("instance_ready_ms/no-copy", without, "ms")


def moves(report, arguments):
    """Requests come all the time; each sees one of a thousand changes."""
    failed, asked = [0], [0]
    with Pair(arguments.build, 2) as pair:
        pair.add_node()
        pair.deploy("f", sm_partition=SHARE)
        stop = threading.Event()

        def client():
            while not stop.is_set():
                asked[0] += 1
                try:
                    pair.ask("f")
                except OSError:
                    failed[0] += 1

        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        for move in range(MOVES):
            late = move % 2
            urllib.request.urlopen(f"{pair.url}/v2/troupe/functions/f/sharing?quota_request={'none' if late else '40%25'}", b"", 60).close()
            wait_for(lambda: bool(pair.owned("f")) != bool(late), 20, f"move {move} of f did not take place")
        stop.set()
        for one in clients:
            one.join()
    report.add("moves_failed_requests", [failed[0]], "")
    report.add("moves_requests", [asked[0]], "")


def ticks(report, arguments):
    for functions in (1000, 10000):
        found = []
        for _ in range(arguments.rounds):
            done = subprocess.run([str(arguments.build / "bin" / "manager_bench"), str(functions), str(functions // 20), "50"],
                                  capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
        report.add(f"manager_tick_ms/{functions}", [one["look_ms"] for one in found], "ms")
        report.add(f"manager_tick_ms_max/{functions}", [one["look_ms_max"] for one in found], "ms")
        report.add(f"manager_tick_ms_placing/{functions}", [one["placing_ms_max"] for one in found], "ms")
        report.add(f"manager_tick_owners/{functions}", [one["owners"] for one in found], "")


PARTS = {"ticks": ticks, "steps": steps, "moves": moves}


def main():
    return run_parts("autoscale", "timed compute: the time of a run is an input; virtual GPUs, real daemons",
                     __doc__, PARTS)


if __name__ == "__main__":
    sys.exit(main())
