"""Whole daemons on one device: requests per second over HTTP, and a worker that is killed under load."""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import onnx

from report import ROOT

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from harness import Daemon, Load, eventually  # noqa: E402

TYPES = {onnx.TensorProto.FLOAT: ("FP32", 4), onnx.TensorProto.INT64: ("INT64", 8)}


def body_of(path):
    """(headers, body) of a request of zeros, by the binary tensor extension."""
    model = onnx.load(str(path), load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    tensors, size = [], 0
    for value in model.graph.input:
        if value.name in weights:
            continue
        name, width = TYPES[value.type.tensor_type.elem_type]
        shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        tensors.append({"name": value.name, "datatype": name, "shape": shape,
                        "parameters": {"binary_data_size": width * math.prod(shape)}})
        size += width * math.prod(shape)
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    return {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}, head + bytes(size)


class System:
    """One daemon of every role with the device's worker; everything ends with the `with` block."""

    def __init__(self, arguments, memory):
        self.arguments, self.memory = arguments, memory

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-gpu-", dir="/tmp")  # a Unix socket's path is short
        kind = self.arguments.device.split(":")[0]
        self.daemon = Daemon(pathlib.Path(self.directory.name) / "one", "all", device=kind, gpus=1, gpu_memory=self.memory,
                             host_region="1GiB")
        self.daemon.wait_serving(gpus=1)
        return self

    def __exit__(self, *_):
        self.daemon.kill_node()
        self.directory.cleanup()

    def deploy(self, name, path):
        self.daemon.http.deploy(name, path.read_bytes()).good()
        self.ask(name, *body_of(path))  # this makes its plan and brings its model

    def ask(self, name, headers, body):
        self.daemon.http.call("POST", f"/v2/models/{name}/infer", body, headers).good()

    def load(self, name, path, connections):
        """One closed loop of http_load; returns what it prints."""
        headers, body = body_of(path)
        file = pathlib.Path(self.directory.name) / "body"
        file.write_bytes(body)
        command = [self.arguments.build / "bin" / "http_load", f"http://{self.daemon.address('gateway')}/v2/models/{name}/infer",
                   "--body", file, "--content-type", headers["Content-Type"], "--connections", connections,
                   "--seconds", max(1, self.arguments.window), "--warm-up", "0.3",
                   "--header", f"Inference-Header-Content-Length: {headers['Inference-Header-Content-Length']}"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"requests to {name} failed: {done.stdout}{done.stderr}\n{self.daemon.tail()}")
        return json.loads(done.stdout)

    def kill_worker_under_load(self, name, path):
        """(milliseconds from the kill to the first answer of a request that was sent after it, requests, failures)."""
        request, answered = body_of(path), []

        def ask():
            begin = time.monotonic()
            self.ask(name, *request)
            answered.append((begin, time.monotonic()))
        load = Load(ask, threads=4)
        load.wait(20)
        (pid,) = self.daemon.workers().values()
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        ended = eventually(lambda: min((end for begin, end in list(answered) if begin > killed), default=None),
                           "a request that came after the kill is answered")
        load.wait(20)
        try:
            load.stop()
        except AssertionError as failed:
            print(f"# {failed}", file=sys.stderr)
        return 1e3 * (ended - killed), len(answered), len(load.failures)


def add_figures(report, arguments, networks, memory):
    noop = networks.pop("noop")
    name, path = next(iter(networks.items()))
    with System(arguments, memory) as system:
        system.deploy("noop", noop)
        system.deploy(name, path)
        for function, file in (("noop", noop), (name, path)):
            rounds = [system.load(function, file, 4 if arguments.small else 32) for _ in range(arguments.rounds)]
            report.add(f"requests_per_second/{function}", [each["requests_per_second"] for each in rounds], "1/s")
            report.add(f"request_p98_ms/{function}", [each["latency_us"]["p98"] / 1e3 for each in rounds], "ms")
        recovered, requests, failures = system.kill_worker_under_load(name, path)
        report.add("killed_worker_recovery_ms", [recovered], "ms")
        report.add("killed_worker_requests", [requests], "")
        report.add("killed_worker_failed_requests", [failures], "")
