#!/usr/bin/python3
"""What an operator's tools cost: the status of a large cluster, and metering with the view of SLOs.

usage: operators.py [--build DIR] [--before DIR] [--rounds N] [--seconds S] [--functions N] [--nodes N] [--gpus N]

status_ms: `troupe cluster status` as a whole command against a manager whose nodes have so many GPUs together (virtual, of
64 MiB, each with its worker), with all functions deployed, beside the same command before anything was deployed.

metering_cost: no-op requests to one embedded daemon, of this build and of another one (--before: the build folder of a
tree that neither meters nor keeps SLOs), each with a daemon of its own, in alternating rounds. p50 of one connection, requests a
second of 32. Left out without --before.
"""
import argparse
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from invoke import CONNECTIONS, Load, Site, compare_builds, free_port
from report import ROOT, Report


class LargeCluster(Site):
    """A manager, a gateway and nodes, each a process."""

    def start(self, nodes, gpus):
        self.manager = f"127.0.0.1:{free_port()}"
        at = ["--manager", self.manager]
        self._wait(self._daemon("manager", "--role", "manager", *at), "ready:.*\n")
        for number in range(nodes):
            self._daemon(f"node-{number}", "--role", "node", *at, "--gpus", str(gpus), "--gpu-memory", "64MiB",
                         "--host-region", "256MiB")
        gateway = self._daemon("gateway", "--role", "gateway", *at, "--http", "127.0.0.1:0")
        self.url = self._wait(gateway, r"gateway at http://[0-9.:]+").split()[-1]
        for number in range(nodes):
            self._wait(f"node-{number}", "worker-ready", "log", 180, times=gpus)

    def deploy(self, functions):
        model = self.noop_model()
        for number in range(functions):
            urllib.request.urlopen(f"{self.url}/v2/troupe/functions/f{number:04d}", model, 60).close()

    def status_ms(self, rounds):
        times = []
        for _ in range(rounds):
            began = time.monotonic()
            done = subprocess.run([str(self.build / "bin" / "troupe"), "--manager", self.manager, "cluster", "status"],
                                  capture_output=True, text=True)
            times.append((time.monotonic() - began) * 1e3)
            if done.returncode != 0:
                raise SystemExit(f"operators.py: troupe cluster status: {done.stderr}")
        return times


def status(report, arguments):
    with LargeCluster(arguments.build, []) as cluster:
        cluster.start(arguments.nodes, arguments.gpus)
        empty = cluster.status_ms(arguments.rounds)
        cluster.deploy(arguments.functions)
        name = f"status_ms/{arguments.functions}-functions-{arguments.nodes * arguments.gpus}-gpus"
        report.add(name, cluster.status_ms(arguments.rounds), "ms", "without functions", empty)


def metering(report, arguments):
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as home:
        load = Load(arguments.build, pathlib.Path(home), arguments.seconds)
        rounds = compare_builds(
            {"now": arguments.build, "before": arguments.before.resolve()}, [], arguments.rounds,
            lambda site: site.troupe(split=False),
            lambda url: (load.once(url, 1)["latency_us"]["p50"], load.once(url, CONNECTIONS)["requests_per_second"]))
    p50, rate = ({name: [each[i] for each in results] for name, results in rounds.items()} for i in range(2))
    report.add("metering_cost/p50", p50["now"], "us", "before", p50["before"])
    report.add("metering_cost/requests_per_second", rate["now"], "1/s", "before", rate["before"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--functions", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=16)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    report = Report("operators")
    status(report, arguments)
    if arguments.before:
        metering(report, arguments)
    report.write()


if __name__ == "__main__":
    main()
