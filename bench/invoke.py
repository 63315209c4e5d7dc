#!/usr/bin/python3
"""What an invocation costs beyond the model: a no-op model, seen by an HTTP client, beside nginx's static GET.

usage: invoke.py [--build DIR] [--before DIR] [--rounds N] [--seconds S] [--daemon-option=--key=value ...]

`all` is one embedded daemon and its worker; `split` is a manager, a gateway and a node, each a process. nginx answers a
file as long as our answer's body. Every round measures each of them once, one after another; --daemon-option is given
to every daemon, so that settings can be compared. raw_caf_round_trip is the floor under them: one message of a request's
size to an actor and back, one at a time, with the daemon's settings of CAF and nothing else. Needs nginx and what
make_models.py needs.

--before, the build folder of another tree (an earlier commit), measures what a change did instead: `all` and `split` of
both builds, each build with daemons of its own, asked in rounds that alternate, by the load generator of --build. It
needs no nginx, and writes build/bench/invoke-before.json.
"""
import argparse
import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from report import ROOT, Report

CONNECTIONS = 32
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": list(range(16))}]})
NGINX = """daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; default_type application/json;
  client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home}; uwsgi_temp_path {home};
  scgi_temp_path {home};
  server {{ listen 127.0.0.1:{port}; root {home}/files; }} }}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Site:
    """The servers that are measured; everything ends with the `with` block."""

    def __init__(self, build, options):
        self.build, self.options, self.processes = build, options, []
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-bench-")
        self.home = pathlib.Path(self.directory.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Nodes and gateways leave while their manager still hears them.
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.directory.cleanup()

    def _daemon(self, name, *options):
        with open(self.home / f"{name}.out", "wb") as out, open(self.home / f"{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(
                [str(self.build / "bin" / "trouped"), "--name", name, "--data", str(self.home / name), "--run",
                 str(self.home / name / "r"), "--set", "lease=1s", "--set", "suspect=2s", "--set", "dead=5s", *options,
                 *self.options], stdout=out, stderr=log))
        return name

    def _wait(self, name, pattern, where="out", seconds=30, times=1):
        """The first match, when there are so many."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.findall(pattern, (self.home / f"{name}.{where}").read_text())
            if len(found) >= times:
                return found[0]
            time.sleep(0.05)
        raise SystemExit(f"invoke.py: {name} is not up: {(self.home / f'{name}.log').read_text()[-1000:]}")

    def noop_model(self):
        model = self.home / "noop.onnx"
        if not model.exists():
            subprocess.run([sys.executable, str(ROOT / "examples" / "make_models.py"), "--output", str(self.home),
                            "noop"], check=True, stdout=subprocess.DEVNULL)
        return model.read_bytes()

    def troupe(self, split):
        """Starts a cluster that serves the no-op model; returns the address of its infer path."""
        manager = ["--manager", f"127.0.0.1:{free_port()}"]
        front = ["--http", "127.0.0.1:0"]
        if split:
            self._wait(self._daemon("manager", "--role", "manager", *manager), "ready:.*\n")
            node = self._daemon("node", "--role", "node", *manager)
            gateway = self._daemon("gateway", "--role", "gateway", *manager, *front)
        else:
            node = gateway = self._daemon("all", "--role", "all", *manager, *front)
        url = self._wait(gateway, r"gateway at http://[0-9.:]+").split()[-1]
        self._wait(node, "worker-ready", "log")
        urllib.request.urlopen(f"{url}/v2/troupe/functions/noop", self.noop_model(), 60).close()
        return f"{url}/v2/models/noop/infer"

    def nginx(self, size):
        (self.home / "files").mkdir()
        (self.home / "files" / "answer").write_bytes(b"x" * size)
        self.home.chmod(0o755)
        port = free_port()
        (self.home / "nginx.conf").write_text(NGINX.format(home=self.home, port=port))
        self.processes.append(subprocess.Popen(["nginx", "-e", str(self.home / "error.log"), "-p", str(self.home),
                                                "-c", str(self.home / "nginx.conf")]))
        return f"http://127.0.0.1:{port}/answer"


class RawCaf:
    """caf_round_trip in one process and between two; everything ends with the `with` block."""

    def __init__(self, build, options=()):
        self.command = [str(build / "bin" / "caf_round_trip"), *options]

    def __enter__(self):
        self.server = subprocess.Popen([*self.command, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = self.server.stdout.readline().decode().strip()
        return self

    def __exit__(self, *_):
        self.server.stdin.close()
        self.server.wait(10)

    def once(self, where):
        options = {"same_process": ["--requests", "20000"], "tcp": ["--requests", "4000", "--peer", self.port]}[where]
        done = subprocess.run([*self.command, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"invoke.py: {done.stderr}")
        return json.loads(done.stdout)


class Load:
    """The load generator, asking for the no-op model (or getting a page)."""

    def __init__(self, build, home, seconds):
        self.program, self.seconds = str(build / "bin" / "http_load"), str(seconds)
        self.body = home / "body.json"
        self.body.write_text(BODY)

    def once(self, url, connections, rate=0, body=True):
        command = [self.program, url, "--connections", str(connections), "--seconds", self.seconds, "--warm-up", "0.3",
                   "--rate", str(rate), *(["--body", str(self.body)] if body else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"invoke.py: {url}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)


def compare_builds(builds, options, rounds, start, measure):
    """Measures several builds ({name: folder}) in rounds, and returns {name: [what `measure` returned in each round]}. Each
    build has its own site; `start` prepares it once, and `measure` is given what `start` returned. Each round takes the
    builds in the opposite order of the round before."""
    for build in builds.values():
        if not (build / "bin" / "trouped").exists():
            raise SystemExit(f"invoke.py: there is no {build}/bin/trouped: name a build folder that has its programs")
    with contextlib.ExitStack() as stack:
        started = {name: start(stack.enter_context(Site(build, options))) for name, build in builds.items()}
        results = {name: [] for name in builds}
        for turn in range(rounds):
            for name in sorted(builds, reverse=turn % 2 == 0):
                results[name].append(measure(started[name]))
    return results


class Bench:
    def __init__(self, arguments, site):
        self.load = Load(arguments.build, site.home, arguments.seconds)
        self.rounds = arguments.rounds
        self.urls = {"all": site.troupe(split=False), "split": site.troupe(split=True)}
        with urllib.request.urlopen(urllib.request.Request(self.urls["all"], BODY.encode()), timeout=60) as answer:
            self.urls["nginx"] = site.nginx(len(answer.read()))

    def compare(self, connections, rates=None):
        """{name: [result of each round]}, the names alternating."""
        results = {name: [] for name in self.urls}
        for _ in range(self.rounds):
            for name, each in results.items():
                each.append(self.load.once(self.urls[name], connections, rates[name] if rates else 0, name != "nginx"))
        return results


def latencies(report, results, suffix):
    for name in ("all", "split"):
        for percentile in ("p50", "p99"):
            ours, theirs = ([each["latency_us"][percentile] for each in results[who]] for who in (name, "nginx"))
            report.add(f"added_latency_{percentile}/{name}{suffix}", ours, "us", "nginx static GET", theirs)


def beside_before(arguments):
    """What a request costs, beside the build of another tree."""
    report = Report("invoke-before")
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as home:
        load = Load(arguments.build, pathlib.Path(home), arguments.seconds)

        def measure(urls):
            return {name: (load.once(url, 1)["latency_us"], load.once(url, CONNECTIONS)["requests_per_second"])
                    for name, url in urls.items()}

        def start(site):
            return {"all": site.troupe(split=False), "split": site.troupe(split=True)}

        builds = {"now": arguments.build, "before": arguments.before.resolve()}
        rounds = compare_builds(builds, arguments.daemon_option, arguments.rounds, start, measure)
    for name in ("all", "split"):
        for percentile in ("p50", "p99"):
            now, before = ([each[name][0][percentile] for each in rounds[build]] for build in ("now", "before"))
            report.add(f"latency_{percentile}/{name}", now, "us", "before", before)
        now, before = ([each[name][1] for each in rounds[build]] for build in ("now", "before"))
        report.add(f"requests_per_second/{name}", now, "1/s", "before", before)
    report.write()


def raw_round_trips(report, build, rounds):
    with RawCaf(build) as raw:
        results = {"same_process": [], "tcp": []}
        for _ in range(rounds):
            for where, each in results.items():
                each.append(raw.once(where))
    for where, each in results.items():
        for percentile in ("p50", "p99"):
            report.add(f"raw_caf_round_trip_{percentile}/{where}", [one[f"{percentile}_us"] for one in each], "us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--daemon-option", action="append", default=[])
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    if arguments.before:
        return beside_before(arguments)
    report = Report("invoke")
    raw_round_trips(report, arguments.build, arguments.rounds)
    with Site(arguments.build, arguments.daemon_option) as site:
        bench = Bench(arguments, site)
        latencies(report, bench.compare(1), "")
        full = bench.compare(CONNECTIONS)
        rates = {name: sorted(each["requests_per_second"] for each in rounds)[len(rounds) // 2] / 2
                 for name, rounds in full.items()}
        latencies(report, bench.compare(CONNECTIONS, rates), "/half_load")
        for name in ("all", "split"):
            ours, theirs = ([each["requests_per_second"] for each in full[who]] for who in (name, "nginx"))
            report.add(f"requests_per_second/{name}", ours, "1/s", "nginx static GET", theirs)
    report.write()


if __name__ == "__main__":
    main()
