#!/usr/bin/python3
"""Device memory: the runs' pool under a bursty load, allocation times, what a function costs beyond its weights.

usage: memory.py [--build DIR] [--models DIR] [--rounds N]

The memory of each network by step is that of its plan; its run time is set to what is usual on a data-centre GPU, as
these figures depend on how memory is used over a run and not on how fast this machine computes. `static` is the
baseline of pool_peak/VARIANT: the goal for its ratio is at most 0.09, and for `fine-resilient` against `fine` 0.33.
The mode that counts is the worker's own: models stay on the GPU, runs take their activations at the launch and trim them; the
largest launch is the least that is possible. `weights=by-layer` is StreamBox's load (004, section 8), which no worker runs:
weights too come and go with the runs. `streams=N`: N runs at a time (a worker's default is one).
"""
import argparse
import pathlib
import subprocess
import sys

from report import ROOT, Report

NETWORKS = {"resnet50": 9, "resnet18": 4, "bert-base": 12, "mlp": 1}  # milliseconds


def measure(build, models):
    """One round: the figures by name, each with its unit."""
    arguments = []
    for name, milliseconds in NETWORKS.items():
        model = models / f"{name}.onnx"
        if not model.exists():
            maker = [sys.executable, str(ROOT / "examples" / "make_models.py"), "--output", str(models)]
            subprocess.run([*maker, "--batch", "1", name], check=True)
        arguments.append(f"{model}={milliseconds}")
    result = subprocess.run([str(build / "bin" / "memory_bench"), *arguments], check=True, capture_output=True, text=True)
    figures = {}
    for line in result.stdout.splitlines():
        name, value, unit = line.split()
        figures[name] = (float(value), unit)
    return figures


def baseline_of(name):
    """The baseline of a figure: the pool without lazy allocation, else none."""
    area, _, variant = name.partition("/")
    if area in ("pool_peak", "pool_mean") and not variant.startswith("static"):
        return name.replace(variant.split("/")[0], "static", 1)
    return None


def add_figures(report, build=ROOT / "build" / "release", models=ROOT / "build" / "bench" / "models", rounds=3):
    """Adds this area's figures to a report, for a benchmark that shows them beside its own figures."""
    measured = [measure(build, models) for _ in range(rounds)]
    for name, (_, unit) in measured[0].items():
        baseline = baseline_of(name)
        others = [figures[baseline][0] for figures in measured] if baseline else None
        report.add(name, [figures[name][0] for figures in measured], unit, "static" if baseline else None, others)
    for name in measured[0]:
        if name.startswith(("pool_peak/fine-resilient", "pool_mean/fine-resilient")):
            values = [[figures[other][0] for figures in measured] for other in (name, name.replace("fine-resilient", "fine"))]
            report.add(f"{name}/beside=fine", values[0], "MB", "fine", values[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "build" / "bench" / "models")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    report = Report("memory")
    add_figures(report, arguments.build, arguments.models, arguments.rounds)
    report.write()


if __name__ == "__main__":
    main()
