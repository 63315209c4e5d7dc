#!/usr/bin/python3
"""What a decision of the node's scheduler costs, by GPUs, functions and preset.

usage: scheduler.py [--build DIR] [--rounds N] [--decisions N] [--sizes GPUS/FUNCTIONS,...] [--presets NAME,...]

Each figure is of the production scheduler, with three requests in the system for each GPU, so that there always is a
queue, and models for some 1.5 times the GPUs' memory, asked for by a Zipf law:

  decision_us/GPUS/FUNCTIONS/PRESET   time in Decide for each request that it dispatched; the baseline is LALB by index
                                      (003, section VI), beside it Algorithm 1 as printed (lalb-o3-printed)
  request_us/...                      in all calls for a request: submitting, deciding, every outcome
  hit_ratio/...                       the share of those requests whose model was on their GPU
"""
import argparse
import pathlib
import subprocess
import sys

from report import ROOT, Report

BASELINE = "lalb-o3"


def measure(build, size, preset, decisions):
    """{figure: (value, unit)} of one run."""
    command = [str(build / "bin" / "scheduler_bench"), *size.split("/"), preset, str(decisions)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: (float(value), unit) for name, value, unit in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--sizes", default="10/100,100/1000,1000/10000")
    parser.add_argument("--presets", default=f"{BASELINE},lalb-o3-printed,torpor,troupe")
    arguments = parser.parse_args()
    report = Report("scheduler", note=f"{arguments.decisions} decisions after as many others")
    presets = [BASELINE, *(name for name in arguments.presets.split(",") if name != BASELINE)]
    for size in arguments.sizes.split(","):
        rounds = [{preset: measure(arguments.build, size, preset, arguments.decisions) for preset in presets}
                  for _ in range(arguments.rounds)]
        for preset in presets:
            for name, (_, unit) in rounds[0][preset].items():
                beside = name.rpartition("/")[0] + "/" + BASELINE
                others = None if preset == BASELINE else [figures[BASELINE][beside][0] for figures in rounds]
                report.add(name, [figures[preset][name][0] for figures in rounds], unit,
                           None if others is None else BASELINE, others)
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
