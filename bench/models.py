#!/usr/bin/python3
"""How long a second node takes to adopt a model that a first one has, beside the link alone.

usage: models.py [--build DIR] [--baseline DIR] [--rounds N] [--mebibytes N] [--network NAME ...]
       models.py --burst NODES [--build DIR] [--rounds N] [--mebibytes N] [--network NAME ...]

A manager and two nodes, each told that it is on a host of its own, so that the model's bytes cross the tensor network (over the
loopback device). The second node starts when the first has adopted the model; the time is that from its joining to its having
adopted it, by the manager's events. Data lie in memory (/dev/shm), so that no disk is measured. The link is what transport_bench
moves, one fetch of 16 MiB after the other, in the same round.

  adoption_ms/NETWORK       beside the same of the programs of --baseline, if given
  adoption_over_link/...    that time over the one that the link alone takes for the model's bytes
  from_nodes/NETWORK        part of the bytes that came from the first node

With --burst so many nodes are there when the function is deployed, and fetch its model at the same time, which the manager alone has.

  burst_ms/NETWORK/NODES    from the deployment until all have adopted it, beside the same with the policy `holders`
  burst_sent/NETWORK/NODES  copies of the model that the manager sent, beside the same
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from invoke import Site, free_port
from report import ROOT, Report

FETCH = 16 << 20


def dense(mebibytes):
    """y = x W, with so many MiB of weights."""
    rows = mebibytes * 256
    weight = np.random.default_rng(1).standard_normal((rows, 1024), dtype=np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "dense",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", rows])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1024])],
                              [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="troupe-bench")
    model.ir_version = 8
    return model.SerializeToString()


class Pair(Site):
    def __init__(self, build, network):
        super().__init__(build, ["--tensor-network", network, "--set", "arena=128MiB"])
        self.directory.cleanup()
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-bench-", dir="/dev/shm")
        self.home = pathlib.Path(self.directory.name)

    def start_manager(self, replicas, *options):
        self.manager = f"127.0.0.1:{free_port()}"
        self._daemon("manager", "--role", "manager,gateway", "--manager", self.manager, "--http", "127.0.0.1:0", "--replicas",
                     str(replicas), "--host-id", "host-manager", *options)
        self.url = self._wait("manager", r"gateway at http://[0-9.:]+").split()[-1]

    def start(self):
        self.start_manager(2)
        self.add_node("a")

    def start_burst(self, nodes, fetching):
        self.start_manager(nodes, "--set", f"fetching={fetching}")
        for number in range(nodes):
            self.add_node(f"n{number}")

    def add_node(self, name):
        self._daemon(name, "--role", "node", "--manager", self.manager, "--host-id", f"host-{name}", "--gpu-memory", "1GiB",
                     "--host-region", "1GiB")
        self._wait(name, "ready:.*\n")

    def events(self, node, kind):
        """The times of these events of that node, in ns."""
        done = subprocess.run([str(self.build / "bin" / "troupe"), "--manager", self.manager, "events", "--json"], capture_output=True,
                              text=True, check=True)
        return [int(event["unixNs"] if "unixNs" in event else event["unix_ns"]) for event in json.loads(done.stdout)["events"]
                if event.get("member") == node and event["kind"] == kind]

    def adopt_ms(self, node):
        end = time.monotonic() + 120
        while not (adopted := self.events(node, "model-adopted")):
            if time.monotonic() > end:
                raise SystemExit(f"models.py: node {node} has not adopted the model: {(self.home / f'{node}.log').read_text()[-2000:]}")
            time.sleep(0.1)
        return (adopted[0] - self.events(node, "member-joined")[0]) / 1e6

    def burst(self, nodes):
        """From the deployment until all nodes have adopted the model, in ms."""
        end = time.monotonic() + 120
        names = [f"n{number}" for number in range(nodes)]
        while not all(self.events(name, "model-adopted") for name in names):
            if time.monotonic() > end:
                raise SystemExit("models.py: not all nodes have adopted the model")
            time.sleep(0.2)
        return (max(self.events(name, "model-adopted")[0] for name in names) - self.events("manager", "function-deployed")[0]) / 1e6

    def metrics(self, daemon):
        operations = re.search(r"operations at http://([0-9.:]+)", (self.home / f"{daemon}.out").read_text()).group(1)
        time.sleep(2.5)  # the measures are renewed each second
        return urllib.request.urlopen(f"http://{operations}/metrics", timeout=30).read().decode()

    def sent_by_manager(self):
        return float(re.search(r"^troupe_manager_model_bytes_sent_total (\S+)$", self.metrics("manager"), re.M).group(1))

    def from_nodes(self, node):
        """The part of the bytes that came from other nodes; None: this build does not count it."""
        text = self.metrics(node)
        found = {source: float(value) for source, value in
                 re.findall(r'^troupe_model_bytes_fetched_total{from="(\w+)",.*} (\S+)$', text, re.M)}
        return found["nodes"] / sum(found.values()) if found else None


def adoption(build, network, model):
    with Pair(build, network) as pair:
        pair.start()
        urllib.request.urlopen(f"{pair.url}/v2/troupe/functions/dense", model, 300).close()
        pair.adopt_ms("a")
        pair.add_node("b")
        return pair.adopt_ms("b"), pair.from_nodes("b")


def burst(build, network, nodes, model, fetching):
    with Pair(build, network) as site:
        site.start_burst(nodes, fetching)
        urllib.request.urlopen(f"{site.url}/v2/troupe/functions/dense", model, 300).close()
        return site.burst(nodes), site.sent_by_manager() / len(model)


def bursts(build, network, nodes, model, rounds, report):
    """Both policies in turn, the other one first in each round."""
    figures = {"relay": [], "holders": []}
    for number in range(rounds):
        for fetching in sorted(figures, reverse=number % 2):
            figures[fetching].append(burst(build, network, nodes, model, fetching))
    for position, (name, unit) in enumerate((("burst_ms", "ms"), ("burst_sent", "copies"))):
        ours, theirs = ([figure[position] for figure in figures[fetching]] for fetching in ("relay", "holders"))
        report.add(f"{name}/{network}/{nodes}", ours, unit, "holders", theirs)


def link_ms(build, network, size):
    done = subprocess.run([str(build / "bin" / "transport_bench"), f"--benchmark_filter=RemoteFetch/{network}/{FETCH}",
                           "--benchmark_format=json", "--benchmark_min_time=0.5"], capture_output=True, text=True, check=True)
    (one,) = json.loads(done.stdout)["benchmarks"]
    return one["real_time"] / 1e6 * size / FETCH


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--baseline", type=pathlib.Path)
    parser.add_argument("--burst", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--network", nargs="+", default=["stream", "ucx"])
    arguments = parser.parse_args()
    build, size = arguments.build.resolve(), arguments.mebibytes << 20
    model = dense(arguments.mebibytes)
    report = Report("models")
    for network in arguments.network:
        if arguments.burst:
            bursts(build, network, arguments.burst, model, arguments.rounds, report)
            continue
        ours, before, link, parts = [], [], [], []
        for number in range(arguments.rounds):
            if arguments.baseline and number % 2:
                before.append(adoption(arguments.baseline.resolve(), network, model)[0])
            took, part = adoption(build, network, model)
            ours.append(took)
            parts.append(part)
            if arguments.baseline and number % 2 == 0:
                before.append(adoption(arguments.baseline.resolve(), network, model)[0])
            link.append(link_ms(build, network, size))
        report.add(f"adoption_ms/{network}", ours, "ms", "before" if before else None, before or None)
        report.add(f"link_ms/{network}", link, "ms")
        report.add(f"adoption_over_link/{network}/{arguments.mebibytes}MiB", [o / l for o, l in zip(ours, link)], "x",
                   "before" if before else None, [b / l for b, l in zip(before, link)] or None)
        report.add(f"from_nodes/{network}", parts, "of the bytes")
    report.write()


if __name__ == "__main__":
    main()
