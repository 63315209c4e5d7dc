#!/usr/bin/python3
"""What isolation costs a function that has another request: from the request to the answer, by the state of its runtime.

usage: isolation.py [--build DIR] [--shared DIR] [--network NAME] [--rounds N] [--compute timed|real]

The functions are copies of one network, of distinct digests, each with its model in host memory and on no GPU. One
client asks for each of them once, one after the other, on a GPU of 6 GB/s with three runtimes:

  resumption_ms/warm     --isolation function: a runtime that serves no function yet is assigned to it
  resumption_ms/cold     the same when all runtimes have functions: the coldest one's worker is killed, and a new one started
  resumption_ms/shared   --isolation shared: the one runtime that all share, where its plan is prepared already
  resumption_ms/resident the same functions asked again at once on their own runtimes: no runtime is resumed

Each includes the request's own cost (HTTP, swap and run). For comparison: Torpor's Table 1 (002), ResNet-152 on a V100,
0.26 s to resume a runtime and 8 s for a container's cold start; its models are not these.
"""
import argparse
import pathlib
import sys
import tempfile
import time

import function_models
from chart import bars
from function_site import FunctionSite
from report import Report

RUNTIMES = 3
TORPOR_MS = {"warm": 260, "cold": 8000}  # runtime resume, cold start


class Client:
    """One request at a time; milliseconds."""

    def __init__(self, site):
        self.site = site

    def ask(self, function):
        began = time.monotonic()
        (answer,) = self.site.replay([(0, function)], 1)
        if answer.failure:
            raise SystemExit(f"isolation.py: {function.name}: {answer.failure}")
        assert answer.seconds <= time.monotonic() - began
        return 1e3 * answer.seconds


def measure(functions, arguments, mode):
    """{figure: [ms]} of one fresh daemon."""
    with tempfile.TemporaryDirectory(prefix="troupe-bench-data-") as data:
        runtimes = 1 if mode == "shared" else RUNTIMES
        options = ["--isolation", mode, "--runtimes", str(runtimes)]
        with FunctionSite(arguments, pathlib.Path(data), functions, options, gpus=1, workers=runtimes) as site:
            site.deploy(functions)
            client = Client(site)
            first = [client.ask(function) for function in functions]
            if mode == "shared":
                return {"shared": first}
            again = [client.ask(function) for function in functions[-RUNTIMES:]]
            return {"warm": first[:RUNTIMES], "cold": first[RUNTIMES:], "resident": again}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    function_models.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compute", choices=["timed", "real"], default="real")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    report = Report("isolation", note=f"{arguments.network}, {arguments.compute} compute, one GPU of 1 GiB at 6 GB/s")
    values = {"warm": [], "cold": [], "shared": [], "resident": []}
    with tempfile.TemporaryDirectory(prefix="troupe-bench-models-") as directory:
        functions = function_models.copies_of(arguments.network, 2 * RUNTIMES, arguments.shared / "models",
                                              pathlib.Path(directory))
        if functions is None:
            print(f"isolation: {arguments.shared} lacks the networks; skipped", file=sys.stderr)
            return 0
        for _ in range(arguments.rounds):
            for mode in ("function", "shared"):
                for name, found in measure(functions, arguments, mode).items():
                    values[name] += found
    for name, found in values.items():
        torpor = TORPOR_MS.get(name)
        report.add(f"resumption_ms/{name}", found, "ms", baseline=torpor and "Torpor Table 1",
                   baseline_values=torpor and [torpor] * len(found))
    report.write()
    path = report.path.with_suffix(".svg")
    if bars(report.figures, "resumption_ms/", path, "From the request to the answer, by where the function's runtime was"):
        print(f"drawn: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
