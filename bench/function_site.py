"""One daemon of every role on a data directory that outlives it, with the requests that functions.py makes."""
import http.client
import json
import pathlib
import queue
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import function_models
from invoke import free_port

PATIENCE = 120  # seconds for one answer
START_SECONDS = 300
UPLOADS = 4
TOPOLOGY = "link:0-1=12GB"  # for the policies that copy between GPUs


class Answer:
    def __init__(self, function, seconds, failure):
        self.function, self.seconds, self.failure = function, seconds, failure


class FunctionSite:
    """absent -> serving (in the `with` block) -> stopped. `data` is kept."""

    def __init__(self, arguments, data, functions, options=(), gpus=2, workers=None):
        """`workers`: the number of workers of all GPUs, where a GPU has several."""
        self.data, self.functions = data, functions
        self.gpus, self.workers = gpus, workers or gpus
        self.bin = arguments.build / "bin"
        self.compute, self.options = arguments.compute, list(options)
        self.bodies = {}

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-bench-")
        self.home = pathlib.Path(self.directory.name)
        self.data.mkdir(parents=True, exist_ok=True)
        self.manager = f"127.0.0.1:{free_port()}"
        began = time.monotonic()
        self._start()
        try:
            self._wait(lambda: self._state("absent", "fetching", "on disk", "loading") == 0 and
                       self.counters()["functions"] == self._state("held"), "the models are in the host region")
        except BaseException:
            self._stop()
            raise
        self.started_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_):
        self._stop()

    def _start(self):
        profile = self.home / "profile"
        profile.write_text("".join(f"{function.digest} {function.run_ms}ms\n" for function in self.functions))
        command = [self.bin / "trouped", "--role", "all", "--name", "one", "--data", self.data, "--run", self.home / "r",
                   "--manager", self.manager, "--http", "127.0.0.1:0", "--operations", "127.0.0.1:0", "--gpus", self.gpus,
                   "--gpu-memory", "1GiB", "--host-region", "8GiB", "--link-bandwidth", "6GB", "--set", "lease=1s",
                   "--set", "suspect=5s", "--set", "dead=20s", "--compute", self.compute, *self.options]
        if self.gpus == 2:
            command += ["--topology", TOPOLOGY]
        if self.compute == "timed":
            command += ["--profile", profile]
        with open(self.home / "out", "wb") as out, open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=log)
        self._wait(lambda: "ready:" in self._text("out"), "the daemon is ready")
        self.url = re.search(r"gateway at (http://[0-9.:]+)", self._text("out")).group(1)
        self.operations = re.search(r"operations at (http://[0-9.:]+)", self._text("out")).group(1)
        self._wait(lambda: self._text("log").count("worker-ready") >= self.workers, "its GPUs are up")

    def _stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.directory.cleanup()

    def _text(self, name):
        return (self.home / name).read_text(errors="replace")

    def _wait(self, true, what):
        end = time.monotonic() + START_SECONDS
        while not true():
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"functions.py: this is not true yet: {what}: {self._text('log')[-1500:]}")
            time.sleep(0.1)

    def _metrics(self):
        text = urllib.request.urlopen(f"{self.operations}/metrics", timeout=10).read().decode()
        return re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M)

    def _state(self, *states):
        return sum(float(value) for name, labels, value in self._metrics() if name == "troupe_host_region_models" and
                   any(f'state="{state}"' in labels for state in states))

    def counters(self):
        """The node's counters under the names of this benchmark."""
        time.sleep(1.2)  # the page is written once a second
        result = {"functions": 0, "region_bytes": 0, "swaps": 0, "swap_bytes": 0}
        names = {"troupe_functions": "functions", "troupe_host_region_used_bytes": "region_bytes",
                 "troupe_node_swap_seconds_count": "swaps", "troupe_node_swap_bytes_total": "swap_bytes"}
        for name, labels, value in self._metrics():
            if name in names:
                result[names[name]] = float(value)
            elif name == "troupe_node_model_was_total":
                result["was/" + re.search(r'source="(\w+)"', labels).group(1)] = float(value)
        shown = json.loads(self.troupe("gpu", "list", "--json"))
        result["busy_ns"] = sum(int(gpu["worker"]["busy_ns"]) for gpu in shown["gpus"])
        result["gpu_model_bytes"] = sum(int(model["bytes"]) for gpu in shown["gpus"] for model in gpu["models"])
        return result

    def troupe(self, *words):
        return subprocess.run([self.bin / "troupe", "--manager", self.manager, *words], check=True, capture_output=True,
                              text=True).stdout

    def missing(self, functions):
        there = {status["record"]["key"]["name"] for status in
                 json.loads(self.troupe("function", "list", "--json"))["functions"]}
        return [function for function in functions if function.name not in there]

    def deploy(self, functions):
        """Deploys the functions, some at a time; returns the seconds that it took."""
        waiting, failures = queue.SimpleQueue(), []
        for function in functions:
            waiting.put(function)

        def run():
            while not failures:
                try:
                    function = waiting.get_nowait()
                except queue.Empty:
                    return
                address = f"{self.url}/v2/troupe/functions/{function.name}?deadline_ms=80"
                try:
                    urllib.request.urlopen(urllib.request.Request(address, function.data), timeout=600).close()
                except urllib.error.HTTPError as error:
                    failures.append(f"{function.name}: {error.read()[:300]}")

        began = time.monotonic()
        self._together(run, UPLOADS)
        if failures:
            raise SystemExit(f"functions.py: not deployed: {failures[0]}")
        return time.monotonic() - began

    def replay(self, trace, connections):
        """Open loop: a request that finds no connection free waits, and its wait counts."""
        for _, function in trace:  # prepared before the clock runs
            if function.name not in self.bodies:
                self.bodies[function.name] = function_models.body_of(function)
        due, answers = queue.SimpleQueue(), []
        begin = time.monotonic()

        def feed():
            for at, function in trace:
                time.sleep(max(0, begin + at - time.monotonic()))
                due.put((begin + at, function))
            for _ in range(connections):
                due.put(None)

        def serve():
            connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)
            while (item := due.get()) is not None:
                at, function = item
                failure = self._ask(connection, function)
                answers.append(Answer(function, time.monotonic() - at, failure))
            connection.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        self._together(serve, connections)
        feeder.join()
        return answers

    def _ask(self, connection, function):
        """The reason of the failure, or None."""
        headers, body = self.bodies[function.name]
        try:
            connection.request("POST", f"/v2/models/{function.name}/infer", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            return None if answer.status == 200 else f"{answer.status} {text[:200]!r}"
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return repr(error)

    @staticmethod
    def _together(run, count):
        threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
