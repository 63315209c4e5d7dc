#!/usr/bin/python3
"""Time of one inference of networks of many families: this project's engine beside ONNX Runtime at equal threads, in
alternating rounds.

usage: ORACLE_FOLDER=FOLDER networks.py [--build DIR] [--rounds N] [--networks a,b] [--threads 1,2] [--batches 1,8]
       networks.py --precision bf16 [...]

FOLDER has node_modules/onnxruntime-node (npm install --ignore-scripts --prefix FOLDER onnxruntime-node). Networks come from
bench/network_zoo.py. Both outputs are compared before anything is measured. Needs Debian's python3-onnx and python3-numpy, and
Node.js.

  NETWORK_ms/threads=N/batch=B       beside ONNX Runtime
  engine_over_ort/NETWORK/...        the median of the rounds' ratios
  engine_over_ort/geomean/...        of all networks that were measured

With --precision each network is measured in that precision beside our own engine in FP32, and no other program is needed: the
ratios are bf16_over_fp32/...
"""
import argparse
import math
import pathlib
import statistics

import network_zoo
from engine import beside_fp32, beside_onnxruntime
from report import ROOT, Report


def measure(report, name, model, threads, batch, arguments):
    """The ratio of our time to the other's."""
    if arguments.precision is None:
        other, ratios, (ours, theirs) = "onnxruntime", "engine_over_ort", beside_onnxruntime(name, model, threads, arguments)
    else:
        other, ratios = "FP32", f"{arguments.precision}_over_fp32"
        ours, theirs = beside_fp32(name, model, threads, arguments, arguments.precision)
    case = f"threads={threads}/batch={batch}"
    report.add(f"{name}_ms/{case}", ours, "ms", other, theirs)
    ratio = statistics.median(mine / its for mine, its in zip(ours, theirs))
    report.add(f"{ratios}/{name}/{case}", [ratio], "")
    return ratios, ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", default=",".join(network_zoo.all_names()))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", default="1")
    parser.add_argument("--precision", choices=["bf16"])
    arguments = parser.parse_args()
    report = Report(arguments.precision or "networks")
    folder = ROOT / "build" / "bench" / "zoo"
    folder.mkdir(parents=True, exist_ok=True)
    for threads in map(int, arguments.threads.split(",")):
        for batch in map(int, arguments.batches.split(",")):
            measured = []
            for name in arguments.networks.split(","):
                model = network_zoo.make(name, batch, folder)
                if model is not None:
                    measured.append(measure(report, name, model, threads, batch, arguments))
            mean = math.exp(statistics.fmean(math.log(ratio) for _, ratio in measured))
            report.add(f"{measured[0][0]}/geomean/threads={threads}/batch={batch}", [mean], "")
    report.write()


if __name__ == "__main__":
    main()
