#!/usr/bin/python3
"""What joining the requests of one function in one run brings, on the real daemon with real compute.

usage: batching.py [--build DIR] [--shared DIR] [--rounds N] [--seconds S] [--models NAME ...] [--policies NAME ...]

    digits      the convolutional network of examples/digits, 8x8 images
    bert_tiny   an encoder of two layers, 128 wide, for 64 tokens (random weights, made here)
    resnet50    light_resnet50 of the models beside the project, with an open batch

One GPU, one daemon for each `batching` policy, measured in turn; the figures go to build/bench/sharing.json. A function's
SLO is --slo times what one of its runs takes alone. A closed loop of more and more connections finds the highest rate at
which 98 of 100 requests meet the SLO:

  batching_gain/MODEL             that rate with `slack` over the one with `off`; batching_gain/MODEL/greedy: with `greedy`
  batching_rate/MODEL/POLICY      the rates themselves
  batching_p50/MODEL[/greedy]     median latency of requests at a fifth of what one connection gets, over that with `off`
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from invoke import Site
from report import ROOT, Report

CONNECTIONS = (1, 2, 4, 8, 16, 32)
POLICIES = ("off", "greedy", "slack")


def tensor(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])


def open_batch(model):
    """The same network for any number of images: its one input, its outputs, and the reshapes between them."""
    constants = {init.name for init in model.graph.initializer}
    for value in [*(i for i in model.graph.input if i.name not in constants), *model.graph.output]:
        if len(value.type.tensor_type.shape.dim) > 1 and value.type.tensor_type.shape.dim[0].dim_value == 1:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for init in model.graph.initializer:
        if init.name not in shapes:
            continue
        shape = numpy_helper.to_array(init).copy()
        if shape[0] == 1:
            shape[0] = 0  # as many as come in
            init.CopyFrom(numpy_helper.from_array(shape, init.name))
    return model


def bert_tiny(tokens=64, width=128, heads=2, layers=2, seed=0):
    """x [batch, tokens, width], embedded already, to y of the same shape."""
    random, nodes, weights = np.random.default_rng(seed), [], []

    def weight(name, *shape):
        weights.append(numpy_helper.from_array((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name))
        return name

    def constant(name, values):
        weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(kind, inputs, output, **attributes):
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def normal(x, name):
        ones = constant(f"{name}_scale", np.ones(width, np.float32))
        zeros = constant(f"{name}_bias", np.zeros(width, np.float32))
        return node("LayerNormalization", [x, ones, zeros], name, axis=-1)

    split = constant("split", np.asarray([0, tokens, heads, width // heads], np.int64))
    merge = constant("merge", np.asarray([0, tokens, width], np.int64))
    scale = constant("scale", np.float32(1 / np.sqrt(width // heads)))
    x = "x"
    for layer in range(layers):
        name = f"l{layer}_"
        parts = []
        for part in "qkv":
            flat = node("MatMul", [x, weight(name + "w" + part, width, width)], name + part)
            cut = node("Reshape", [flat, split], name + part + "s")
            parts.append(node("Transpose", [cut], name + part + "t", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]))
        scores = node("Mul", [node("MatMul", parts[:2], name + "qk"), scale], name + "scores")
        mixed = node("MatMul", [node("Softmax", [scores], name + "p", axis=-1), parts[2]], name + "mixed")
        back = node("Reshape", [node("Transpose", [mixed], name + "back", perm=[0, 2, 1, 3]), merge], name + "merged")
        out = node("MatMul", [back, weight(name + "wo", width, width)], name + "o")
        x = normal(node("Add", [x, out], name + "sum1"), name + "n1")
        inner = node("Relu", [node("MatMul", [x, weight(name + "w1", width, 4 * width)], name + "up")], name + "inner")
        down = node("MatMul", [inner, weight(name + "w2", 4 * width, width)], name + "down")
        x = normal(node("Add", [x, down], name + "sum2"), name + "n2" if layer + 1 < layers else "y")
    graph = helper.make_graph(nodes, "bert_tiny", [tensor("x", tokens, width)], [tensor("y", tokens, width)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def networks(shared):
    """{name: (ONNX bytes, input name, shape of one request)}; without what is not there."""
    found = {"digits": ((ROOT / "examples" / "digits" / "digits.onnx").read_bytes(), "image", (1, 1, 8, 8)),
             "bert_tiny": (bert_tiny(), "x", (1, 64, 128))}
    path = shared / "models" / "light_resnet50.onnx"
    if path.exists():
        found["resnet50"] = (open_batch(onnx.load(str(path))).SerializeToString(), "gpu_0/data_0", (1, 3, 224, 224))
    else:
        print(f"batching: {path} is not there; ResNet-50 is left out", file=sys.stderr)
    return found


class OneGpu(Site):
    """One daemon with one GPU and a policy; gone at the end of the `with` block."""

    def __init__(self, arguments, policy, **settings):
        """`settings`: advanced options of the daemon, with _ for each -."""
        super().__init__(arguments.build, [])
        self.arguments, self.settings = arguments, {"batching": policy, **settings}

    def __enter__(self):
        name = self._daemon("one", "--role", "all", "--manager", "127.0.0.1:0", "--http", "127.0.0.1:0", "--gpu-memory", "1GiB",
                            "--host-region", "1GiB", "--compute", "real",
                            *(word for key, value in self.settings.items() for word in ("--set", f"{key.replace('_', '-')}={value}")))
        self.url = self._wait(name, r"gateway at (http://[0-9.:]+)", seconds=60)
        self._wait(name, "worker-ready", "log", seconds=60)
        return self

    def deploy(self, name, data, slo_ms):
        request = urllib.request.Request(f"{self.url}/v2/troupe/functions/{name}?deadline_ms={slo_ms:.0f}", data)
        urllib.request.urlopen(request, timeout=120).close()

    def load(self, name, input_name, shape, connections=1, rate=0, seconds=None):
        size = 4 * int(np.prod(shape))
        head = json.dumps({"inputs": [{"name": input_name, "datatype": "FP32", "shape": list(shape),
                                       "parameters": {"binary_data_size": size}}],
                           "parameters": {"binary_data_output": True}}).encode()
        body = self.home / f"body-{name}"
        body.write_bytes(head + np.random.default_rng(1).random(size // 4, np.float32).tobytes())
        command = [self.arguments.build / "bin" / "http_load", f"{self.url}/v2/models/{name}/infer", "--body", body,
                   "--content-type", "application/octet-stream", "--header",
                   f"Inference-Header-Content-Length: {len(head)}", "--connections", connections, "--seconds",
                   seconds or self.arguments.seconds, "--warm-up", "0.5", "--rate", rate]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"batching.py: {name}, {connections} connections: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def sizes(self, name):
        stats = json.load(urllib.request.urlopen(f"{self.url}/v2/models/{name}/stats", timeout=10))["model_stats"][0]
        return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in stats["batch_stats"]}


def best_rate(site, name, network, slo_us):
    """(requests a second, connections): the highest rate at which 98 of 100 requests meet the SLO."""
    best = (0.0, 0)
    for connections in CONNECTIONS:
        found = site.load(name, *network[1:], connections=connections)
        if found["latency_us"]["p98"] <= slo_us:
            best = max(best, (found["requests_per_second"], connections))
    return best


def measure(report, arguments):
    found = networks(arguments.shared)
    for name in arguments.models or found:
        if name not in found:
            continue
        network = found[name]
        with OneGpu(arguments, "off") as site:
            site.deploy(name, network[0], 1000)
            alone_us = site.load(name, *network[1:])["latency_us"]["p50"]
        slo_us = arguments.slo * alone_us
        print(f"{name}: alone {alone_us / 1e3:.2f} ms, SLO {slo_us / 1e3:.1f} ms", flush=True)
        rates = {policy: [] for policy in arguments.policies}
        medians = {policy: [] for policy in arguments.policies}
        for _ in range(arguments.rounds):
            for policy in arguments.policies:
                with OneGpu(arguments, policy) as site:
                    site.deploy(name, network[0], max(1, slo_us / 1e3))
                    # Times are learned, and larger sizes tried, before anything is measured.
                    for connections in (1, 16, 16):
                        site.load(name, *network[1:], connections=connections)
                    rate, connections = best_rate(site, name, network, slo_us)
                    quiet = site.load(name, *network[1:], rate=0.2e6 / alone_us)["latency_us"]["p50"]
                    rates[policy].append(rate)
                    medians[policy].append(quiet)
                    print(f"  {policy}: {rate:.0f}/s at {connections} connections, p50 at low load {quiet / 1e3:.2f} ms, "
                          f"runs by size {site.sizes(name)}", flush=True)
        for policy in arguments.policies:
            report.add(f"batching_rate/{name}/{policy}", rates[policy], "1/s", "off", rates["off"])
            if policy == "off":
                continue
            suffix = "" if policy == "slack" else f"/{policy}"
            report.add(f"batching_gain/{name}{suffix}", [a / b for a, b in zip(rates[policy], rates["off"])], "x")
            report.add(f"batching_p50/{name}{suffix}", [a / b for a, b in zip(medians[policy], medians["off"])], "x")


def add_arguments(parser):
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--shared", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TROUPE_SHARED_DIR", ROOT.parent / "shared")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--slo", type=float, default=20, help="of a function, in times of one of its requests alone")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--policies", nargs="*", default=POLICIES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    report = Report("sharing", note=f"one virtual GPU, real compute, SLO {arguments.slo:g} times a request alone")
    measure(report, arguments)
    report.keep_others(lambda name: name.startswith("batching_"))
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
