#!/usr/bin/python3
"""What shared memory saves a client of the gateway's machine: 16 MiB in and 16 MiB out, by regions and by raw bodies.

usage: shared_memory.py [--build DIR] [--rounds N] [--requests N]

A manager, a gateway and a node, each a process, and a function that doubles its input. Each round asks the same requests both
ways, one at a time on one connection: with the tensors in the bodies (Triton's binary extension; the client sends its array
from where it lies and reads the answer into another one), and in a region that is registered once. The processor time is
the gateway's own; the bytes are what went through its HTTP sockets and what it copied from and to the region.
"""
import argparse
import http.client
import json
import mmap
import os
import pathlib
import re
import time
import urllib.request

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from invoke import Site, free_port
from report import ROOT, Report, percentile

SHAPE = (4096, 1024)
SIZE = 16 << 20


def double():
    """y = 2 x, of any number of rows."""
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "double",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SHAPE[1]])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", SHAPE[1]])],
                              [numpy_helper.from_array(np.float32(2), "two")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="troupe-bench")
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString()


class Cluster(Site):
    def start(self):
        """(host, port) and the gateway's process number."""
        manager = ["--manager", f"127.0.0.1:{free_port()}"]
        self._wait(self._daemon("manager", "--role", "manager", *manager), "ready:.*\n")
        self._daemon("node", "--role", "node", *manager)
        self._daemon("gateway", "--role", "gateway", *manager, "--http", "127.0.0.1:0")
        gateway = self.processes[-1].pid
        url = self._wait("gateway", r"gateway at http://[0-9.:]+").split()[-1]
        self._wait("node", "worker-ready", "log")
        urllib.request.urlopen(f"{url}/v2/troupe/functions/double", double(), 60).close()
        host, _, port = url.removeprefix("http://").rpartition(":")
        return host, int(port), gateway


class Client:
    """One connection; `x` and `y` are a region's two arrays, and `ask_*` returns the bytes that went over HTTP."""

    def __init__(self, host, port, name):
        self.connection, self.name = http.client.HTTPConnection(host, port, timeout=60), name
        with open(f"/dev/shm/{name}", "w+b") as file:
            file.truncate(2 * SIZE)
            self.memory = mmap.mmap(file.fileno(), 2 * SIZE)
        self.x = np.ndarray(SHAPE, np.float32, self.memory, 0)
        self.y = np.ndarray(SHAPE, np.float32, self.memory, SIZE)
        self.x[:] = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
        self.post(f"/v2/systemsharedmemory/region/{name}/register", {"key": name, "offset": 0, "byte_size": 2 * SIZE})

    def post(self, path, value):
        body = json.dumps(value)
        self.connection.request("POST", path, body)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"shared_memory.py: {path}: {text[:300]!r}")
        return len(body) + len(text)

    def ask_shared(self):
        place = lambda offset: {"shared_memory_region": self.name, "shared_memory_offset": offset,
                                "shared_memory_byte_size": SIZE}
        return self.post("/v2/models/double/infer", {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": SHAPE, "parameters": place(0)}],
            "outputs": [{"name": "y", "parameters": place(SIZE)}]})

    def ask_raw(self):
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": SHAPE,
                                       "parameters": {"binary_data_size": SIZE}}],
                           "parameters": {"binary_data_output": True}}).encode()
        self.connection.request("POST", "/v2/models/double/infer", [head, memoryview(self.x).cast("B")], {
            "Inference-Header-Content-Length": str(len(head)), "Content-Length": str(len(head) + SIZE)})
        answer = self.connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"shared_memory.py: {answer.read()[:300]!r}")
        described = len(answer.read(int(answer.headers["Inference-Header-Content-Length"])))
        into, done = memoryview(self.y).cast("B"), 0
        while done < SIZE:
            done += answer.readinto(into[done:])
        answer.read()
        return len(head) + SIZE + described + SIZE

    def copied(self):
        """Bytes that the gateway copied from and to regions since its start."""
        self.connection.request("GET", "/metrics")
        page = self.connection.getresponse().read().decode()
        return sum(float(value) for value in re.findall(r"^troupe_shared_memory_copied_bytes_total\S* (\S+)$", page,
                                                        re.MULTILINE))


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(client, ask, gateway, requests):
    """(p50 in ms, ms of the gateway's processor, MiB over HTTP, MiB copied from and to regions) for each request."""
    times, over_http, copied, busy = [], 0, client.copied(), processor_seconds(gateway)
    for _ in range(requests):
        client.y[:] = 0
        begin = time.monotonic()
        over_http += ask()
        times.append(1e3 * (time.monotonic() - begin))
        if client.y[-1, -1] != 2 * client.x[-1, -1]:
            raise SystemExit("shared_memory.py: an answer is wrong")
    busy = processor_seconds(gateway) - busy
    return (percentile(times, 50), 1e3 * busy / requests, over_http / requests / 2**20,
            (client.copied() - copied) / requests / 2**20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40)
    options = parser.parse_args()
    name = f"troupe-bench-{os.getpid()}"
    report = Report("shared-memory")
    try:
        with Cluster(options.build, []) as cluster:
            host, port, gateway = cluster.start()
            client = Client(host, port, name)
            for ask in (client.ask_raw, client.ask_shared):
                measure(client, ask, gateway, 5)  # the model comes to the GPU, the pages of the arenas are made
            rounds = [(measure(client, client.ask_shared, gateway, options.requests),
                       measure(client, client.ask_raw, gateway, options.requests)) for _ in range(options.rounds)]
    finally:
        if os.path.exists(f"/dev/shm/{name}"):
            os.unlink(f"/dev/shm/{name}")
    for i, (figure, unit) in enumerate([("p50", "ms"), ("gateway_processor", "ms"), ("over_http", "MiB")]):
        report.add(f"infer_16MiB_both_ways_{figure}", [shared[i] for shared, _ in rounds], unit,
                   baseline="raw bodies", baseline_values=[raw[i] for _, raw in rounds])
    report.add("infer_16MiB_both_ways_copied_from_and_to_regions", [shared[3] for shared, _ in rounds], "MiB")
    report.write()


if __name__ == "__main__":
    main()
