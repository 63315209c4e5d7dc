#!/usr/bin/python3
"""What the steps of a workflow cost beyond their runs, by the real daemons, and where their tensors lie.

usage: workflow.py [--build DIR] [--rounds N] [--seconds S] [--only PART ...]

  noop_chain_p50_over_infer     p50 of a workflow of three no-op models over that of one request of the model: its start, its steps and
                                its end are durable; noop_chain_p50_ms and infer_p50_ms are the two
  runs_per_second               runs of that workflow with 32 connections
  communication_ms/MIB/GPUS/POLICY  a workflow of three steps with MIB of tensors between them, beyond its runs, which take 10 ms each
                                in timed mode: p50 of its runs, one after the other, less 30 ms
  communication_over_host_only/MIB/GPUS  `elastic` as a ratio of `host-only`, of the same round
  gather_ms/MIB/GPUS/POLICY     a for_each of eight calls, and a step that reads what they gave as one tensor of MIB: p50 of its runs, one
                                after the other, less their timed runs: 90 ms on one GPU, 50 ms on two
  gather_over_host_only/MIB/GPUS  `elastic` as a ratio of `host-only`, of the same round
  copied_mib/MIB/GPUS/POLICY    what left GPUs for it, beside its outputs
  pressure_ms/POLICY            the same with 8 MiB between steps on a GPU of 80 MiB, while a client calls three functions of 32 MiB each in
                                turn, so that weights and tensors need the same memory; the runs of others are in it, the same for
                                every policy
  pressure_over/NAME            `elastic` as a ratio of the policy NAME, of the same round
  system_ms/SYSTEM              the workflow of `communication` with 8 MiB on two GPUs of 1 GiB, by the preset SYSTEM (docs/dataplane.md)
  system_over/NAME              `streambox` as a ratio of the preset NAME, of the same round
  stages_ms/CASE                p50 of requests, one after the other, to a model of 48 MiB: `whole` on one GPU of 96 MiB, in two stages on
                                two GPUs of 36 MiB (`pipeline`), and on one of 36 MiB (`turns`), whose weights come anew each time; runs are
                                timed: 10 ms for the whole model, 5 ms for a stage
  stages_per_second/CASE        requests with four connections; stages_rate_over/CASE: as a ratio of `whole`, of the same round
"""
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from invoke import BODY, Site
from report import run_parts

RUN_MS = 10
MIB = (8, 32)
GPUS = (1, 2)
POLICIES = ("elastic", "host-only")
SYSTEMS = ("streambox", "troupe", "infless", "stream-only")
PRESSED = ("elastic", "no-pressure", "no-movement", "static", "host-only")
CHAIN = """name: {name}
inputs:
  x: {{type: FP32, shape: [{shape}]}}
steps:
  - {{name: one, function: {one}, inputs: {{x: x}}}}
  - {{name: two, function: {two}, inputs: {{x: one.y}}}}
  - {{name: three, function: {three}, inputs: {{x: two.y}}}}
outputs: {{y: three.y}}
"""


def serialize(nodes, given, made, weights=()):
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bench", [value("x", given)], [value("y", made)], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def networks(rows):
    """From 4 KiB to `rows` times as much, as much again, and back."""
    node = helper.make_node
    shape = numpy_helper.from_array(np.array([rows, 1], np.int64), "shape")
    two = numpy_helper.from_array(np.array([2], np.float32), "two")
    return {"widen": serialize([node("Tile", ["x", "shape"], ["y"])], [1, 1024], [rows, 1024], [shape]),
            "keep": serialize([node("Mul", ["x", "two"], ["y"])], [rows, 1024], [rows, 1024], [two]),
            "narrow": serialize([node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=1)], [rows, 1024], [1, 1024])}


class One(Site):
    def __init__(self, build, *options):
        super().__init__(build, [])
        self.extra = options

    def __enter__(self):
        name = self._daemon("all", "--role", "all", "--http", "127.0.0.1:0", "--manager", "127.0.0.1:0", *self.extra)
        self.url = self._wait(name, r"gateway at http://[0-9.:]+").split()[-1]
        self.manager = self._wait(name, r"manager at [0-9.:]+").split()[-1]
        self._wait(name, "worker-ready", "log")
        return self

    def deploy(self, name, model):
        urllib.request.urlopen(f"{self.url}/v2/troupe/functions/{name}", model, 60).close()

    def submit(self, workflow):
        urllib.request.urlopen(f"{self.url}/v2/troupe/workflows", workflow.encode(), 60).close()

    def ask(self, name, body):
        with urllib.request.urlopen(f"{self.url}/v2/models/{name}/infer", body, 60) as answer:
            answer.read()

    def p50_ms(self, name, body, seconds):
        """Of requests that follow each other; the first ones are not counted."""
        for _ in range(5):
            self.ask(name, body)
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end or len(times) < 5:
            began = time.monotonic()
            self.ask(name, body)
            times.append(1000 * (time.monotonic() - began))
        return statistics.median(times)

    def load(self, name, connections, seconds, content=BODY):
        body = self.home / "body"
        body.write_text(content)
        done = subprocess.run([str(self.build / "bin" / "http_load"), f"{self.url}/v2/models/{name}/infer", "--body", str(body),
                               "--connections", str(connections), "--seconds", str(seconds)], capture_output=True, text=True)
        found = json.loads(done.stdout)
        if done.returncode or found["failed"]:
            raise SystemExit(f"workflow.py: requests failed: {found}")
        return found

    def copied(self):
        done = subprocess.run([str(self.build / "bin" / "troupe"), "--manager", self.manager, "gpu", "list", "--json"],
                              capture_output=True, text=True, check=True)
        return sum(int(gpu["worker"].get("copy_out_bytes", 0)) for gpu in json.loads(done.stdout)["gpus"])


def noop(report, arguments):
    chains, infers, rates = [], [], []
    for _ in range(arguments.rounds):
        with One(arguments.build) as site:
            site.deploy("noop", site.noop_model())
            site.submit(CHAIN.format(name="chain", shape="1, 16", one="noop", two="noop", three="noop"))
            infers.append(site.load("noop", 1, arguments.seconds)["latency_us"]["p50"] / 1000)
            chains.append(site.load("chain", 1, arguments.seconds)["latency_us"]["p50"] / 1000)
            rates.append(site.load("chain", 32, arguments.seconds)["requests_per_second"])
    report.add("infer_p50_ms", infers, "ms")
    report.add("noop_chain_p50_ms", chains, "ms")
    report.add("noop_chain_p50_over_infer", [chain / infer for chain, infer in zip(chains, infers)], "")
    report.add("runs_per_second", rates, "runs/s")


def timed(arguments, *options, run_ms=RUN_MS):
    """A cluster of one daemon whose runs take so long."""
    site = One(arguments.build)
    profile = site.home / "profile"
    profile.write_text(f"default {run_ms}ms\n")
    site.extra = ["--compute", "timed", "--profile", str(profile), "--set", "arena=512MiB", *options]
    return site


def deploy_chain(site, mib):
    for name, model in networks(256 * mib).items():
        site.deploy(name, model)
    site.submit(CHAIN.format(name="chain", shape="1, 1024", one="widen", two="keep", three="narrow"))


ROW = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1024], "data": [0.5] * 1024}]}).encode()


def compare_policies(report, arguments, figure, timed_runs, measure):
    """FIGURE_ms by size, GPUs and policy: what `measure(site, mib, gpus, policy)` gives, less `timed_runs(gpus)` runs; and its ratios."""
    found = {}
    for _ in range(arguments.rounds):
        for mib, gpus, policy in itertools.product(MIB, GPUS, POLICIES):
            with timed(arguments, "--gpus", str(gpus), "--gpu-memory", "512MiB", "--set", f"intermediates={policy}") as site:
                took = measure(site, mib, gpus, policy)
            found.setdefault((mib, gpus, policy), []).append(took - timed_runs(gpus) * RUN_MS)
    for mib, gpus in itertools.product(MIB, GPUS):
        for policy in POLICIES:
            report.add(f"{figure}_ms/{mib}/{gpus}/{policy}", found[mib, gpus, policy], "ms")
        report.add(f"{figure}_over_host_only/{mib}/{gpus}",
                   [ours / theirs for ours, theirs in zip(found[mib, gpus, "elastic"], found[mib, gpus, "host-only"])], "")


def communication(report, arguments):
    copied = {}

    def measure(site, *case):
        deploy_chain(site, case[0])
        site.ask("chain", ROW)
        before = site.copied()
        site.ask("chain", ROW)
        copied.setdefault(case, []).append((site.copied() - before) / 2**20)
        return site.p50_ms("chain", ROW, arguments.seconds)
    compare_policies(report, arguments, "communication", lambda gpus: 3, measure)
    for (mib, gpus, policy), values in copied.items():
        report.add(f"copied_mib/{mib}/{gpus}/{policy}", values, "MiB")


CALLS = 8
GATHER = f"""name: gather
inputs:
  x: {{type: FP32, shape: [{CALLS}, 1024]}}
steps:
  - {{name: each, function: spread, inputs: {{x: x}}, for_each: {{input: x, dimension: 0}}}}
  - {{name: all, function: narrow, inputs: {{x: each.y}}}}
outputs: {{y: all.y}}
"""


def deploy_gather(site, mib):
    """Each call makes its part of `mib`; a step reads them all."""
    width = mib * 2**18 // CALLS
    repeats = numpy_helper.from_array(np.array([1, width // 1024], np.int64), "shape")
    node = helper.make_node
    site.deploy("spread", serialize([node("Tile", ["x", "shape"], ["y"])], [1, 1024], [1, width], [repeats]))
    site.deploy("narrow", serialize([node("ReduceMax", ["x"], ["y"], axes=[1], keepdims=1)], [CALLS, width], [CALLS, 1]))
    site.submit(GATHER)


def gather(report, arguments):
    rows = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [CALLS, 1024], "data": [0.5] * CALLS * 1024}]}).encode()

    def measure(site, mib, *_):
        deploy_gather(site, mib)
        return site.p50_ms("gather", rows, arguments.seconds)
    compare_policies(report, arguments, "gather", lambda gpus: CALLS // gpus + 1, measure)


def filler(mib):
    """A small product whose weights are mostly not read: what counts is their size."""
    weights = np.zeros((64, mib * 4096), np.float32)
    weights[:, 0] = 1
    nodes = [helper.make_node("MatMul", ["x", "w"], ["all"]), helper.make_node("ReduceMax", ["all"], ["y"], axes=[1], keepdims=1)]
    return serialize(nodes, [1, 64], [1, 1], [numpy_helper.from_array(weights, "w")])


def pressure(report, arguments):
    other = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [1.0] * 64}]}).encode()
    found = {policy: [] for policy in PRESSED}
    for _ in range(arguments.rounds):
        for policy in PRESSED:
            with timed(arguments, "--gpus", "1", "--gpu-memory", "80MiB", "--set", f"intermediates={policy}") as site:
                fillers = [f"filler-{i}" for i in range(3)]
                for name in fillers:
                    site.deploy(name, filler(32))
                deploy_chain(site, 8)
                over = threading.Event()

                def ask():
                    while not over.is_set():
                        for name in fillers:
                            site.ask(name, other)
                busy = threading.Thread(target=ask)
                busy.start()
                try:
                    took = site.p50_ms("chain", ROW, arguments.seconds)
                finally:
                    over.set()
                    busy.join()
            found[policy].append(took - 3 * RUN_MS)
    for policy in PRESSED:
        report.add(f"pressure_ms/{policy}", found[policy], "ms")
        if policy != "elastic":
            report.add(f"pressure_over/{policy}", [ours / theirs for ours, theirs in zip(found["elastic"], found[policy])], "")


def systems(report, arguments):
    found = {system: [] for system in SYSTEMS}
    for _ in range(arguments.rounds):
        for system in SYSTEMS:
            with timed(arguments, "--gpus", "2", "--gpu-memory", "1GiB", "--policy", system) as site:
                deploy_chain(site, 8)
                found[system].append(site.p50_ms("chain", ROW, arguments.seconds) - 3 * RUN_MS)
    for system in SYSTEMS:
        report.add(f"system_ms/{system}", found[system], "ms")
        if system != "streambox":
            report.add(f"system_over/{system}", [ours / theirs for ours, theirs in zip(found["streambox"], found[system])], "")


LAYERS = 12  # of 4 MiB each


def layered():
    names = ["x", *(f"t{i}" for i in range(1, LAYERS)), "y"]
    weights = [np.roll(np.eye(1024, dtype=np.float32), i + 1, axis=1) for i in range(LAYERS)]
    return serialize([helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(LAYERS)], [1, 1024], [1, 1024],
                     [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)])


def stages(report, arguments):
    cases = {"whole": ("1", "96MiB", RUN_MS), "pipeline": ("2", "36MiB", RUN_MS / 2), "turns": ("1", "36MiB", RUN_MS / 2)}
    took, rates = {case: [] for case in cases}, {case: [] for case in cases}
    for _ in range(arguments.rounds):
        for case, (gpus, memory, run_ms) in cases.items():
            with timed(arguments, "--gpus", gpus, "--gpu-memory", memory, run_ms=run_ms) as site:
                site.deploy("big", layered())
                took[case].append(site.p50_ms("big", ROW, arguments.seconds))
                rates[case].append(site.load("big", 4, arguments.seconds, ROW.decode())["requests_per_second"])
    for case in cases:
        report.add(f"stages_ms/{case}", took[case], "ms")
        report.add(f"stages_per_second/{case}", rates[case], "requests/s")
        if case != "whole":
            report.add(f"stages_rate_over/{case}", [ours / theirs for ours, theirs in zip(rates[case], rates["whole"])], "")


PARTS = {"noop": noop, "communication": communication, "gather": gather, "pressure": pressure, "systems": systems,
         "stages": stages}


def main():
    return run_parts("workflow", "virtual GPUs, real daemons; the runs of `communication` are timed: 10 ms each, an input",
                     __doc__, PARTS, seconds=5)


if __name__ == "__main__":
    sys.exit(main())
