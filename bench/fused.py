#!/usr/bin/python3
"""Time of one inference of what optimised and quantised files contain: this project's engine beside ONNX Runtime at equal
threads, in alternating rounds.

usage: ORACLE_FOLDER=FOLDER fused.py [--build DIR] [--rounds N] [--networks a,b] [--threads 1,2]

FOLDER has node_modules/onnxruntime-node (npm install --ignore-scripts --prefix FOLDER onnxruntime-node). Both outputs are
compared before anything is measured. Needs Debian's python3-onnx and python3-numpy, and Node.js.
"""
import argparse
import pathlib
import sys
import tempfile

from engine import beside_onnxruntime
from report import ROOT, Report

sys.path.insert(0, str(ROOT / "tests" / "conformance" / "opsets"))
import numpy as np  # noqa: E402
from onnx import helper  # noqa: E402

from fused_networks import Bert  # noqa: E402
from harness import Case, model_of  # noqa: E402

INTO, OUT = 768, 3072


def bert(form):
    """Two layers of BERT-base."""
    weights = Bert(layers=2, width=768, heads=12, inner=3072, words=1000, batch=1, length=128, places=128)
    case = getattr(weights, form)()
    case.symbols = {}
    return case, [np.zeros((1, 128, 768), np.float32), np.zeros((1, 768), np.float32)]


def product(rows, operator, constants, **attributes):
    node = helper.make_node(operator, ["x", *constants], ["y"], domain="com.microsoft" if operator != "MatMul" else "", **attributes)
    case = Case(operator.lower(), 13, [node], {"x": np.zeros((rows, INTO), np.float32)}, constants, ["y"])
    return case, [np.zeros((rows, OUT), np.float32)]


def few_bits(rows, bits):
    random = np.random.default_rng(1)
    constants = {"packed": random.integers(0, 256, (OUT, INTO // 32, 4 * bits)).astype(np.uint8),
                 "scales": random.uniform(0.01, 0.05, (OUT, INTO // 32)).astype(np.float32)}
    return product(rows, "MatMulNBits", constants, K=INTO, N=OUT, bits=bits, block_size=32)


def quantised(rows):
    random = np.random.default_rng(2)
    constants = {"b": random.integers(-128, 128, (INTO, OUT)).astype(np.int8), "scale": np.float32(0.02)}
    return product(rows, "DynamicQuantizeMatMul", constants)


NETWORKS = {
    "bert-exported": lambda: bert("exported"),
    "bert-optimised": lambda: bert("optimised"),
    "4-bits-1-row": lambda: few_bits(1, 4),
    "4-bits-128-rows": lambda: few_bits(128, 4),
    "bytes-1-row": lambda: quantised(1),
    "bytes-128-rows": lambda: quantised(128),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--threads", default="1,2")
    arguments = parser.parse_args()
    report = Report("fused")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks.split(","):
            model = pathlib.Path(folder) / f"{name}.onnx"
            model.write_bytes(model_of(*NETWORKS[name]()).SerializeToString())
            for threads in map(int, arguments.threads.split(",")):
                ours, theirs = beside_onnxruntime(name, model, threads, arguments)
                report.add(f"{name.replace('-', '_')}_ms/threads={threads}", ours, "ms", "onnxruntime", theirs)
    report.write()


if __name__ == "__main__":
    main()
