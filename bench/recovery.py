#!/usr/bin/python3
"""How soon a cluster of real daemons serves again: a manager, two gateways, three nodes of two virtual GPUs (tests/chaos).

usage: recovery.py [--build DIR] [--kills N] [--nodes N] [--functions N] [--fresh N] [--only PART,...]

  kept_answer_ms/MODEL    on a node with one GPU and several models on it: kill -9 of the worker -> the end of the first answer
                          of a model, keep-weights on, beside off; each time with a daemon of its own. kept_bytes_again: what
                          was swapped in after the kill until all models had answered

  worker_recovery_ms      kill -9 of a worker -> the end of the first answer of one of its models, which another GPU gives;
                          its swap is within (the models are small). worker_respawn_ms: until a new worker is up
  node_detection_ms       kill -9 of a node's daemon and workers -> the manager says that it is dead
  node_silent_ms          the same for one that is stopped: only its silence shows it
  node_takeover_ms        kill -> a request for each of its functions has been answered elsewhere
  half_load_p98_ms        p98 of the requests in the 2 s after a worker's kill beside that of the 4 s before, all rounds
                          together, at half of the load that the GPUs can take (timed runs of 40 ms). others: of functions
                          that were not on the killed GPU; all: its own, too
  manager_restart_ms      start of a manager with --functions functions -> it serves; manager_members_ms: -> all members are
                          there again. failed_requests: of clients that kept asking for known functions meanwhile

It prints how busy the machine was: a figure is worth something only on a machine that does nothing else.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("kept", "worker", "node", "half-load", "manager")
RUN_MS = 40  # of a timed run
BEFORE, AFTER = 4.0, 2.0  # seconds of the windows round a kill


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--kills", type=int, default=18, help="kills of workers; many more meet the back-off of crash loops")
    parser.add_argument("--nodes", type=int, default=10, help="deaths of nodes of each sort")
    parser.add_argument("--rounds", type=int, default=8, help="kills at half load")
    parser.add_argument("--fresh", type=int, default=7, help="kills of the one worker of a node, of each sort")
    parser.add_argument("--functions", type=int, default=10000)
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS)
    return parser.parse_args()


ARGUMENTS = parse()
os.environ["TROUPE_BUILD_DIR"] = str(ARGUMENTS.build)  # before the harness is read
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "chaos"), str(ROOT / "bench")]

from harness import eventually  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.networks import digits, rolls, scale  # noqa: E402
from report import Report  # noqa: E402
from rig import checks, faults, network  # noqa: E402
from rig.history import ANSWERED, History  # noqa: E402
from rig.load import SMALL, Caller, deploy_all  # noqa: E402
from rig.report import quantile  # noqa: E402
from rig.site import GATEWAYS, GPUS, MANAGER, NODES, Site  # noqa: E402
from rig.watch import Watch  # noqa: E402


class Bed:
    """A site that serves, and the notes of what was done to it."""

    def __init__(self, site):
        self.site, self.history = site, History()
        deploy_all(site)
        checks.wait_served(site, self.history)
        self.watch = Watch(site, self.history).start()

    def do(self, fault, times, seed):
        """The notes of `count` faults, each from health to health."""
        notes = []
        for number in range(times):
            bench = faults.Bench(self.site, self.history, self.watch, random.Random(f"{seed} {number}"))
            fault(bench)
            self.site.wait_members()
            checks.wait_served(self.site, self.history)
            notes.append(bench.note)
        return notes


def add(report, name, notes, key=None):
    values = [note[key or name] for note in notes if (key or name) in note]
    if values:
        report.add(name, values, "ms")
        report.add(f"{name}_p99", [quantile(values, 0.99)], "ms")


class KeptBed:
    """One node with one GPU and three models on it; `kill` measures the first answer of one of them."""

    def __init__(self, directory, keep):
        import numpy as np
        onnx, images, _ = digits()
        self.asked = {"digits": {"image": images[:1]}, "rolls-32": {"x": np.zeros((1, 1024), np.float32)},
                      "scale": {"x": np.zeros((1, 4), np.float32)}}
        self.daemon = Daemon(directory, "all", **{"gpu-memory": "1GiB", "keep-weights": keep}).wait_serving()
        self.http = self.daemon.http
        for name, model in (("digits", onnx), ("rolls-32", rolls(8, 1)), ("scale", scale(2))):
            self.http.deploy(name, model).good()
            self.ask(name)
        eventually(lambda: all(self.http.function(name).get("resident_on") for name in self.asked), "all are on the GPU")
        time.sleep(2)  # this is no wait for a condition: what the daemon does by itself after a deployment has ended then

    def ask(self, name):
        self.http.ask(name, self.asked[name]).good()

    def metric(self, name):
        lines = self.daemon.operations.get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def kill(self, name):
        """(milliseconds to the first answer of this model, bytes swapped in until all have answered)"""
        swapped, served, pid = "troupe_node_swap_bytes_total", self.metric("troupe_node_served_total"), self.daemon.workers()[0]
        before = self.metric(swapped)
        began = time.monotonic()
        os.kill(pid, 9)
        self.ask(name)
        took = (time.monotonic() - began) * 1e3
        for other in self.asked:
            self.ask(other)
        eventually(lambda: self.metric("troupe_node_served_total") > served + len(self.asked), "the answers are counted")
        return took, self.metric(swapped) - before

    def close(self):
        self.daemon.kill_node()


def kept(report):
    for name in ("scale", "digits", "rolls-32"):
        times, again = {"on": [], "off": []}, {"on": [], "off": []}
        for _ in range(ARGUMENTS.fresh):
            for keep in times:
                with tempfile.TemporaryDirectory() as directory:
                    bed = KeptBed(directory, keep)
                    took, moved = bed.kill(name)
                    bed.close()
                times[keep].append(took)
                again[keep].append(moved)
        report.add(f"kept_answer_ms/{name}", times["on"], "ms", "off", times["off"])
        for keep, moved in again.items():
            report.add(f"kept_bytes_again/{name},keep-weights={keep}", moved, "bytes")


def workers(report):
    with Site(network.Loopback()) as site:
        bed = Bed(site)
        notes = bed.do(faults.kill_worker, ARGUMENTS.kills, "worker")
        bed.watch.stop()
    add(report, "worker_recovery_ms", notes)
    add(report, "worker_respawn_ms", notes)


def nodes(report):
    with Site(network.Loopback()) as site:
        bed = Bed(site)
        killed = bed.do(faults.kill_node, ARGUMENTS.nodes, "node")
        stopped = bed.do(faults.stop_node, ARGUMENTS.nodes, "silent")
        bed.watch.stop()
    add(report, "node_detection_ms", killed)
    add(report, "node_takeover_ms", killed)
    add(report, "node_copies_ms", killed)
    add(report, "node_silent_ms", stopped, "node_detection_ms")


class Arrivals:
    """An open loop of timed functions, whose answers are zeros: each request's begin and time are kept."""

    def __init__(self, site, rate):
        self.clients = [site.http(name) for name in GATEWAYS]
        self.rate, self.times, self.failures = rate, [], []
        self._stop = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(96)
        self._thread = threading.Thread(target=self._arrive, daemon=True)
        self._thread.start()

    def _arrive(self):
        import numpy as np
        x, order, due, number = np.zeros((1, 4), np.float32), random.Random("half load"), time.monotonic(), 0
        names = sorted(SMALL)
        while not self._stop.is_set():
            due += 1 / self.rate
            time.sleep(max(0.0, due - time.monotonic()))
            number += 1
            self._pool.submit(self._ask, self.clients[number % len(self.clients)], order.choice(names), x, due)

    def _ask(self, client, name, x, due):
        answer = client.ask(name, {"x": x})
        self.times.append((due, name, (time.monotonic() - due) * 1e3))
        if answer.code != 200:
            self.failures.append(answer.code)

    def stop(self):
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def between(self, begin, end, without=()):
        return [took for due, name, took in self.times if begin <= due < end and name not in without]


def half_load(report):
    with tempfile.NamedTemporaryFile("w", suffix=".profile") as profile:
        profile.write(f"default {RUN_MS}ms\n")
        profile.flush()
        with Site(network.Loopback(), {"compute": "timed", "profile": profile.name}) as site:
            deploy_all(site)
            eventually(lambda: site.http(GATEWAYS[1]).get("/v2/models/chain/ready").code == 200, "all is known")
            arrivals = Arrivals(site, 0.5 * len(NODES) * GPUS / (RUN_MS * 1e-3))
            time.sleep(BEFORE)  # this is the window of a measurement, not a wait for a condition
            order, kills = random.Random("kills"), []
            for _ in range(ARGUMENTS.rounds):
                time.sleep(BEFORE)
                node, gpu = order.choice(NODES), order.randrange(GPUS)
                on_it = [name for name in SMALL
                         if f"{node}/{gpu}" in site.http(GATEWAYS[0]).function(name).get("resident_on", [])]
                kills.append((time.monotonic(), on_it))
                os.kill(site.workers(node)[gpu], 9)
                time.sleep(AFTER + 1)
                site.wait_members()
            arrivals.stop()
    for name, which in (("others", lambda on_it: on_it), ("all", lambda on_it: ())):
        before = [took for at, on_it in kills for took in arrivals.between(at - BEFORE, at, which(on_it))]
        after = [took for at, on_it in kills for took in arrivals.between(at, at + AFTER, which(on_it))]
        if before and after:
            report.add(f"half_load_p98_ms/{name}", [quantile(after, 0.98)], "ms", "before", [quantile(before, 0.98)])
            report.add(f"half_load_requests/{name}", [len(after)], "count")
    report.add("half_load_failed_requests", [len(arrivals.failures)], "count")


def deploy_many(site, count):
    """Functions of one digest, since only their number in the registry matters."""
    onnx, client = scale(2), site.http(GATEWAYS[0])
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda i: client.deploy(f"many-{i:05}", onnx), range(count)):
            answer.good()
    return time.monotonic() - began


def manager(report):
    with Site(network.Loopback()) as site:
        deploy_all(site)
        report.add(f"deploy_s/functions={ARGUMENTS.functions}", [deploy_many(site, ARGUMENTS.functions)], "s")
        history, stop = History(), threading.Event()
        caller = Caller(site, history)

        def ask():
            while not stop.is_set():
                for name, factor in SMALL.items():
                    caller.small(name, factor, 1, once=True)
        clients = [threading.Thread(target=ask) for _ in range(2)]
        for client in clients:
            client.start()
        ready, members = [], []
        for _ in range(5):
            site.kill(MANAGER)
            began = time.monotonic()
            site.start(MANAGER)
            ready.append((time.monotonic() - began) * 1e3)
            site.wait_members()
            members.append((time.monotonic() - began) * 1e3)
        stop.set()
        for client in clients:
            client.join()
        failed = [operation for operation in history.operations() if operation.outcome != ANSWERED]
    report.add(f"manager_restart_ms/functions={ARGUMENTS.functions}", ready, "ms")
    report.add(f"manager_members_ms/functions={ARGUMENTS.functions}", members, "ms")
    report.add("manager_away_requests", [len(history.operations())], "count")
    report.add("manager_away_failed_requests", [len(failed)], "count")


def main():
    load = os.getloadavg()[0]
    report = Report("recovery", note=f"load average at the beginning: {load:.1f} on {os.cpu_count()} cores")
    for name, part in (("kept", kept), ("worker", workers), ("node", nodes), ("half-load", half_load), ("manager", manager)):
        if name in ARGUMENTS.only:
            part(report)
    report.write()


if __name__ == "__main__":
    main()
