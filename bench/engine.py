#!/usr/bin/python3
"""Time of one inference, batch 1: this project's engine beside PyTorch at equal threads, in alternating rounds.

usage: engine.py [--build DIR] [--models DIR] [--rounds N] [--networks a,b] [--threads 1,2]

Networks come from examples/make_models.py. PyTorch runs the same ONNX graph, translated to its own operators, traced and
optimised for inference (batch norms folded, weights reordered ahead where PyTorch can). Both outputs are compared before
anything is measured. Needs Debian's python3-torch, python3-onnx and python3-numpy.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

from report import ROOT, Report

NETWORKS = ["resnet50", "resnet18", "bert-base", "mlp"]
SECONDS_PER_ROUND = 0.5


class Contender:
    """A process that runs a network as often as it is told and answers with the median milliseconds."""

    def __init__(self, command, threads):
        # As a GPU worker has them whose threads have the cores to themselves.
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="1000")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.facts = self.process.stdout.readline().strip()
        if not self.facts.startswith("ready"):
            raise SystemExit(f"{command[0]} did not start: {self.facts}")

    def run(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check(name, engine, torch):
    """Both print the sum of the first output's magnitudes."""
    sums = [float(re.search(r"output=(\S+)", contender.facts).group(1)) for contender in (engine, torch)]
    if abs(sums[0] - sums[1]) > 1e-2 * abs(sums[1]):
        raise SystemExit(f"{name}: the outputs differ: their magnitudes add up to {sums[0]} and {sums[1]}")


def alternate(name, model, threads, arguments, baseline, most, precision="fp32"):
    """The milliseconds of our engine and of the baseline (a command), round by round; at most `most` runs make a round."""
    engine = Contender([str(arguments.build / "bin" / "engine_bench"), str(model), str(threads), precision], threads)
    other = Contender([*baseline, str(model), str(threads)], threads)
    check(name, engine, other)
    counts = []
    for contender in (engine, other):
        contender.run(2)
        counts.append(max(2, min(most, int(SECONDS_PER_ROUND * 1000 / contender.run(2)))))
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(engine.run(counts[0]))
        theirs.append(other.run(counts[1]))
    print(f"# {name} on {threads} threads: {engine.facts}", file=sys.stderr)
    engine.close()
    other.close()
    return ours, theirs


def beside_onnxruntime(name, model, threads, arguments):
    baseline = ["node", str(ROOT / "bench" / "onnxruntime_baseline.js")]
    return alternate(name, model, threads, arguments, baseline, most=1000)


def beside_fp32(name, model, threads, arguments, precision):
    baseline = [str(arguments.build / "bin" / "engine_bench")]
    return alternate(name, model, threads, arguments, baseline, most=1000, precision=precision)


def measure(report, name, model, threads, arguments):
    baseline = [sys.executable, str(ROOT / "bench" / "torch_baseline.py")]
    ours, theirs = alternate(name, model, threads, arguments, baseline, most=100)
    report.add(f"{name.replace('-', '_')}_b1_ms/threads={threads}", ours, "ms", "torch", theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "build" / "bench" / "models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--threads", default="1,2")
    arguments = parser.parse_args()
    report = Report("engine")
    for name in arguments.networks.split(","):
        model = arguments.models / f"{name}.onnx"
        if not model.exists():
            maker = [sys.executable, str(ROOT / "examples" / "make_models.py"), "--output", str(arguments.models)]
            subprocess.run([*maker, "--batch", "1", name], check=True)
        for threads in map(int, arguments.threads.split(",")):
            measure(report, name, model, threads, arguments)
    report.write()


if __name__ == "__main__":
    main()
