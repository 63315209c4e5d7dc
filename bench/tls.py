#!/usr/bin/python3
"""What TLS costs: between daemons, and of HTTP.

usage: tls.py [--build DIR] [--rounds N] [--seconds S]

Two clusters of a manager, a gateway and a node, each a process that takes itself for a host of its own, at this machine's own
address, since loopback addresses are Unix sockets: one with certificates, one with --insecure-network. Each round measures
both, one after the other. Then a gateway with HTTPS beside one without, asked over one connection for the latency and over
eight for the requests each second. And one message of a request's size to an actor and back, alone.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import urllib.request

from invoke import Load, Site, free_port
from report import ROOT, Report


def own_address():
    """The address by which this machine would reach another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            raise SystemExit("tls.py: this machine has no address but loopback, where daemons speak without TLS")
        return probe.getsockname()[0]


class Network(Site):
    def __init__(self, build):
        super().__init__(build, [])
        self.address = own_address()

    def issue(self, name, roles):
        """The folder of a certificate for this machine's address."""
        environment = dict(os.environ, TROUPE_CA=str(self.home / "ca"))
        troupe = str(self.build / "bin" / "troupe")
        if not (self.home / "ca").exists():
            subprocess.run([troupe, "ca", "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
        folder = self.home / "certificates" / name
        folder.parent.mkdir(exist_ok=True)
        subprocess.run([troupe, "ca", "issue", *(word for role in roles for word in ("--role", role)), "--host", self.address,
                        "--host", "127.0.0.1", "--out", str(folder), name], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
        return folder

    def cluster(self, tls):
        """The address of the infer path of a gateway whose node is reached over the network."""
        kind = "tls" if tls else "plain"
        manager = f"{self.address}:{free_port()}"

        def start(role, *options):
            name = f"{kind}-{role}"
            trust = ["--tls-dir", str(self.issue(name, [role]))] if tls else ["--insecure-network"]
            listen = [] if role == "manager" else ["--listen", f"{self.address}:0"]
            return self._daemon(name, "--role", role, "--manager", manager, "--host-id", f"host-{name}", *listen, *trust,
                                *options)

        self._wait(start("manager"), "ready:.*\n")
        node = start("node")
        url = self._wait(start("gateway", "--http", "127.0.0.1:0"), r"gateway at http://[0-9.:]+").split()[-1]
        self._wait(node, "worker-ready", "log")
        return self.deploy(url)

    def embedded(self, name, *options):
        daemon = self._daemon(name, "--role", "all", "--manager", f"127.0.0.1:{free_port()}", "--http", "127.0.0.1:0", *options)
        url = self._wait(daemon, r"gateway at https?://[0-9.:]+").split()[-1]
        self._wait(daemon, "worker-ready", "log")
        return self.deploy(url)

    def deploy(self, url):
        context = ssl._create_unverified_context() if url.startswith("https") else None
        urllib.request.urlopen(f"{url}/v2/troupe/functions/noop", self.noop_model(), 60, context=context).close()
        return f"{url}/v2/models/noop/infer"


class RoundTrip:
    """caf_round_trip between two processes at this machine's address."""

    def __init__(self, build, address, options):
        self.command = [str(build / "bin" / "caf_round_trip"), "--at", address, *options]

    def __enter__(self):
        self.server = subprocess.Popen([*self.command, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = self.server.stdout.readline().decode().strip()
        return self

    def __exit__(self, *_):
        self.server.stdin.close()
        self.server.wait(10)

    def once(self):
        done = subprocess.run([*self.command, "--requests", "4000", "--peer", self.port], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"tls.py: {done.stderr}")
        return json.loads(done.stdout)["p50_us"]


def tensors(build):
    """{(form, bytes): seconds} of one fetch from another host."""
    done = subprocess.run([str(build / "bin" / "transport_bench"), "--benchmark_filter=RemoteFetch", "--benchmark_format=json"],
                          capture_output=True, text=True, check=True)
    found = {}
    for one in json.loads(done.stdout)["benchmarks"]:
        form, size = re.match(r"RemoteFetch/(\w+)/(\d+)/", one["name"]).groups()
        found[form, int(size)] = one["real_time"] / 1e9
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    build, rounds = arguments.build.resolve(), range(arguments.rounds)
    report = Report("tls")
    with Network(build) as site:
        load = Load(build, site.home, arguments.seconds)
        urls = {tls: site.cluster(tls) for tls in (False, True)}
        requests = {tls: [] for tls in urls}
        for number in rounds:
            for tls in (False, True) if number % 2 else (True, False):  # the order alternates
                requests[tls].append(load.once(urls[tls], 1)["latency_us"])
        for name in ("p50", "p99"):
            report.add(f"request_{name}/tls_between_daemons", [one[name] for one in requests[True]], "us", "without TLS",
                       [one[name] for one in requests[False]])
        folder = site.issue("round-trip", ["gateway", "admin"])
        with RoundTrip(build, site.address, []) as plain, RoundTrip(build, site.address, ["--tls-dir", str(folder)]) as tls:
            pairs = [(plain.once(), tls.once()) for _ in rounds]
        report.add("message_p50/tls", [pair[1] for pair in pairs], "us", "without TLS", [pair[0] for pair in pairs])
    with Network(build) as site:
        folder = site.issue("https", ["gateway"])
        load = Load(build, site.home, arguments.seconds)
        urls = (site.embedded("http"),
                site.embedded("https", "--http-tls-certificate", str(folder / "certificate.pem"), "--http-tls-key",
                              str(folder / "key.pem")))
        one, eight = ([[load.once(url, connections) for url in urls] for _ in rounds] for connections in (1, 8))
        for name in ("p50", "p99"):
            report.add(f"http_{name}/https", [pair[1]["latency_us"][name] for pair in one], "us", "HTTP",
                       [pair[0]["latency_us"][name] for pair in one])
        report.add("http_requests_per_second/https", [pair[1]["requests_per_second"] for pair in eight], "1/s", "HTTP",
                   [pair[0]["requests_per_second"] for pair in eight])
    fetches = [tensors(build) for _ in range(5)]  # each value is the mean of many
    for size in sorted({size for _, size in fetches[0]}):
        for form in ("stream", "tls"):
            report.add(f"tensor_{size}/{form}", [1e6 * one[form, size] for one in fetches], "us", "UCX over TCP",
                       [1e6 * one["ucx", size] for one in fetches])
    report.write()


if __name__ == "__main__":
    main()
