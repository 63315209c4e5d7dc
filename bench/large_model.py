#!/usr/bin/python3
"""Deploys a model of more than 2 GiB and asks it: how long that takes, and how much private memory each program uses.

usage: large_model.py [--build DIR] [--table-mib N] [--matrices N]

A manager, a gateway and a node, each a process. The model looks a row up in a table of 2.25 GiB, one tensor in a file beside
the ONNX file, and multiplies it by matrices of 16 MiB each, which are packed. It is sent over HTTP in parts of 64 MiB
(/v2/troupe/uploads), with the gateway killed and started again in the middle, deployed by its digest, and asked; then
`troupe function deploy` deploys the same files. The memory is RssAnon, read every 20 ms: what a process has beyond mapped files
and shared memory. Needs 30 GB of disk where the temporary folder is (TMPDIR), and 8 GB of memory.
"""
import argparse
import hashlib
import http.client
import json
import pathlib
import subprocess
import threading
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

from invoke import Site, free_port
from report import ROOT, Report

COLUMNS = 2048
PART = 64 << 20


def scale_of(matrix):
    return 1 + (matrix + 1) / 1024


def write_model(folder, table_mib, matrices):
    """y = table[x] W0 W1 ...; row r of the table is r everywhere, and Wi is a multiple of the unit matrix."""
    rows = (table_mib << 20) // (COLUMNS * 4)
    tensors, at = [], 0
    with open(folder / "weights.bin", "wb") as file:
        def external(name, dims, blocks):
            nonlocal at
            begin = at
            for block in blocks:
                at += file.write(block.astype(np.float32).tobytes())
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "weights.bin"), ("offset", begin), ("length", at - begin)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
        step = 1024
        external("table", [rows, COLUMNS], (np.repeat(np.arange(r, min(r + step, rows)), COLUMNS) for r in range(0, rows, step)))
        for i in range(matrices):
            external(f"w{i}", [COLUMNS, COLUMNS], [np.eye(COLUMNS) * scale_of(i)])
    nodes = [helper.make_node("Gather", ["table", "x"], ["v0"])]
    nodes += [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(matrices)]
    nodes.append(helper.make_node("Identity", [f"v{matrices}"], ["y"]))
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", TensorProto.INT64, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, COLUMNS])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return rows


class Memory:
    """Watches how much private memory each program uses, and keeps the highest value of each."""

    def __init__(self, root):
        self.root, self.most, self.stopping = root, {}, False
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def stop(self):
        self.stopping = True
        self.thread.join()
        return self.most

    def _watch(self):
        while not self.stopping:
            for status in pathlib.Path("/proc").glob("[0-9]*/status"):
                try:
                    command = (status.parent / "cmdline").read_bytes().decode().split("\0")
                    if not any(self.root in word for word in command):
                        continue
                    name = pathlib.Path(command[0]).name
                    if name == "trouped":
                        name = command[command.index("--name") + 1]
                    kib = int(next(line for line in status.read_text().splitlines() if line.startswith("RssAnon")).split()[1])
                    self.most[name] = max(self.most.get(name, 0), kib / 1024)
                except (OSError, StopIteration, ValueError):
                    continue  # it has ended
            time.sleep(0.02)


class Cluster(Site):
    def start(self, room):
        self.manager = ["--manager", f"127.0.0.1:{free_port()}"]
        self.address = f"127.0.0.1:{free_port()}"
        self._wait(self._daemon("manager", "--role", "manager", *self.manager), "ready:.*\n")
        self._daemon("node", "--role", "node", *self.manager, "--host-region", room, "--gpu-memory", room)
        self.gateway()
        self._wait("node", "worker-ready", "log")

    def gateway(self):
        self._daemon("gateway", "--role", "gateway", *self.manager, "--http", self.address)
        self._wait("gateway", "gateway at http")

    def kill_gateway(self):
        process = self.processes.pop()
        process.kill()
        process.wait()

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer, answer.read()


def upload(cluster, archive, digest):
    """Sends the file in parts; the gateway dies after the tenth."""
    path, parts = f"/v2/troupe/uploads/{digest}", 0
    with open(archive, "rb") as file:
        while True:
            answer, body = cluster.ask("HEAD", path)
            if answer.headers.get("Upload-Complete") == "?1":
                return
            offset = int(answer.headers["Upload-Offset"]) if answer.status == 200 else 0
            file.seek(offset)
            part = file.read(PART)
            last = offset + len(part) == archive.stat().st_size
            answer, body = cluster.ask("PATCH", path, part, {"Upload-Offset": str(offset), "Upload-Complete": f"?{int(last)}"})
            assert answer.status == 200, body
            parts += 1
            if parts == 10:
                cluster.kill_gateway()
                cluster.gateway()


def check(cluster, name, rows, matrices):
    """Seconds of the first request; its answer is right."""
    began = time.monotonic()
    row = rows - 1
    body = json.dumps({"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [row]}]})
    answer, said = cluster.ask("POST", f"/v2/models/{name}/infer", body)
    assert answer.status == 200, said
    expected = row * np.prod([np.float32(scale_of(i)) for i in range(matrices)], dtype=np.float64)
    np.testing.assert_allclose(json.loads(said)["outputs"][0]["data"], expected, rtol=1e-4)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--table-mib", type=int, default=2304)
    parser.add_argument("--matrices", type=int, default=24)
    options = parser.parse_args()
    report = Report("large-model")
    with Cluster(options.build, []) as cluster:
        folder = cluster.home / "export"
        folder.mkdir()
        rows = write_model(folder, options.table_mib, options.matrices)
        archive = cluster.home / "model.tar"
        subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "model.onnx", "weights.bin"], check=True)
        with open(archive, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else \
                subprocess.run(["sha256sum", str(archive)], check=True, capture_output=True, text=True).stdout[:64]
        cluster.start(f"{options.table_mib + 16 * options.matrices + 512}MiB")
        memory = Memory(str(cluster.home))
        began = time.monotonic()
        upload(cluster, archive, digest)
        report.add("upload_s", [time.monotonic() - began], "s")
        archive.unlink()
        began = time.monotonic()
        answer, body = cluster.ask("POST", f"/v2/troupe/functions/large?digest={digest}")
        assert answer.status == 200, body
        report.add("import_and_adoption_s", [time.monotonic() - began], "s")
        report.add("first_request_s", [check(cluster, "large", rows, options.matrices)], "s")
        report.add("request_s", [check(cluster, "large", rows, options.matrices)], "s")
        began = time.monotonic()
        subprocess.run([str(options.build / "bin" / "troupe"), "function", "deploy", "again", str(folder), *cluster.manager],
                       check=True, stdout=subprocess.DEVNULL)
        report.add("shell_deploy_s", [time.monotonic() - began], "s")
        check(cluster, "again", rows, options.matrices)
        report.add("model_mib", [(folder / "weights.bin").stat().st_size / 2**20], "MiB")
        for name, mib in sorted(memory.stop().items()):
            report.add(f"memory_mib/{name}", [mib], "MiB")
    report.write()


if __name__ == "__main__":
    main()
