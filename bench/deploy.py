#!/usr/bin/python3
"""From a file to the first answer: how long a deployment takes beside a copy of the file, and the first request beside later ones.

usage: deploy.py [--build DIR] [--rounds N] [--requests N] [--models NAME ...]

    vgg16       138 million weights, 528 MiB, random; the model of the first figure
    resnet50, bert-base-128, mlp    of network_zoo.py

One daemon (`--role all`, one GPU, real compute) in each round, with data on the disk where the temporary folder is (TMPDIR).
`troupe function deploy` uploads the file, and ends when a node has adopted the model. The copy reads the same file, writes it
beside it and has it durable (fsync), once just before each deployment. The figures go to build/bench/deploy.json:

  deploy_seconds/MODEL            the deployment; its baseline is the copy
  first_request_ms/MODEL          from the first request to its answer, nothing of the model being on a GPU; its baseline is the
                                  median of the --requests after it
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
import onnx

from invoke import Site
from network_zoo import FLOAT, INT64, Net, make
from report import ROOT, Report

MODELS = ("vgg16", "resnet50", "bert-base-128", "mlp")
CHANNELS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: a pooling layer


def vgg16(folder):
    net, before = Net("vgg16", 0, 1), 3
    x = net.input("image", FLOAT, 3, 224, 224)
    for channels in CHANNELS:
        if channels == 0:
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
            continue
        x = net.op("Relu", net.conv(x, before, channels, 3, bias=True))
        before = channels
    x = net.op("Relu", net.linear(net.op("Flatten", x), 512 * 7 * 7, 4096))
    x = net.op("Relu", net.linear(x, 4096, 4096))
    net.op("Identity", net.linear(x, 4096, 1000), name="scores")
    net.output("scores", FLOAT, [net.batch, 1000])
    net.save(folder / "vgg16.onnx")
    return folder / "vgg16.onnx"


def copy_seconds(file, folder):
    copy = folder / "copy"
    begin = time.monotonic()
    with open(file, "rb") as source, open(copy, "wb") as target:
        while block := source.read(1 << 20):
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    seconds = time.monotonic() - begin
    copy.unlink()
    return seconds


def request_for(file):
    """(headers, body) of a request with an input of zeros for each input of the model."""
    model = onnx.load(str(file), load_external_data=False)
    constants = {init.name for init in model.graph.initializer}
    inputs, data = [], b""
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
        kind, dtype = {FLOAT: ("FP32", np.float32), INT64: ("INT64", np.int64)}[tensor.elem_type]
        raw = np.zeros(shape, dtype).tobytes()
        inputs.append({"name": value.name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(raw)}})
        data += raw
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}, head + data


class OneDaemon(Site):
    def start(self):
        self._daemon("one", "--role", "all", "--manager", "127.0.0.1:0", "--http", "127.0.0.1:0", "--gpu-memory", "2GiB",
                     "--host-region", "3GiB", "--compute", "real")
        self.url = self._wait("one", r"gateway at (http://[0-9.:]+)", seconds=60)
        self.manager = self._wait("one", r"manager at ([0-9.:]+)", seconds=60)
        self._wait("one", "worker-ready", "log", seconds=60)

    def deploy(self, name, file):
        begin = time.monotonic()
        subprocess.run([self.build / "bin" / "troupe", "--manager", self.manager, "function", "deploy", name, file],
                       check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begin

    def ask(self, name, headers, body):
        request = urllib.request.Request(f"{self.url}/v2/models/{name}/infer", body, headers)
        begin = time.monotonic()
        urllib.request.urlopen(request, timeout=120).read()
        return (time.monotonic() - begin) * 1e3


def measure(report, arguments, folder):
    for name in arguments.models:
        file = vgg16(folder) if name == "vgg16" else make(name, 1, folder)
        copies, deployments, firsts, laters = [], [], [], []
        for _ in range(arguments.rounds):
            with OneDaemon(arguments.build, []) as site:
                site.start()
                copies.append(copy_seconds(file, site.home))
                deployments.append(site.deploy(name, file))
                headers, body = request_for(file)
                firsts.append(site.ask(name, headers, body))
                laters.append(statistics.median(site.ask(name, headers, body) for _ in range(arguments.requests)))
        report.facts[f"bytes/{name}"] = file.stat().st_size
        report.add(f"deploy_seconds/{name}", deployments, "s", "copy", copies)
        report.add(f"first_request_ms/{name}", firsts, "ms", "later requests", laters)
        file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    arguments = parser.parse_args()
    report = Report("deploy")
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as folder:
        measure(report, arguments, pathlib.Path(folder))
    report.write()


if __name__ == "__main__":
    main()
