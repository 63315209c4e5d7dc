#!/usr/bin/python3
"""Functions share one GPU: several runs of one at a time, quotas of time that change while requests flow, one gate for all
workers of a GPU, and what a killed worker had of it."""
import concurrent.futures
import itertools
import os
import pathlib
import re
import signal
import time
import unittest

import numpy as np

from harness import E2eTest, Load, main
from harness.client import infer_binary
from harness.networks import EXAMPLES, dense, scale
from harness.shell import Shell
from harness.waiting import eventually

X = np.arange(4, dtype=np.float32).reshape(1, 4)
RUN_SECONDS = 0.1  # on all SMs; no faster with more than 12 % of them
MODELS = pathlib.Path(os.environ.get("TROUPE_SHARED_DIR", EXAMPLES.parent.parent / "shared")) / "models"
FAN_OUT = """
name: fan-{name}
inputs:
  x: {{type: FP32, shape: [16, 4]}}
steps:
  - name: each
    function: {name}
    inputs: {{x: x}}
    for_each: {{input: x, dimension: 0, most: 16, at_once: 16}}
outputs:
  y: each.y
"""


class Sharing(E2eTest):
    def serve(self, gpus=1, **options):
        profile = self.directory / "profile"
        profile.write_text(f"default {int(1000 * RUN_SECONDS)}ms 12%\n")
        self.daemon = self.start("one", "all", gpus=gpus, compute="timed", profile=profile, measure="requests",
                                 **options).wait_serving(gpus=gpus)
        self.http = self.daemon.http
        self.shell = Shell(self.daemon.address("manager"), self.directory)

    def ask(self, name):
        self.http.infer(name, {"x": X})

    def ask_many(self, name, times):
        """So many requests at once; the seconds until the last answer."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(times) as pool:
            for answer in [pool.submit(self.ask, name) for _ in range(times)]:
                answer.result()
        return time.monotonic() - began

    def test_eight_runs_of_a_function_compute_at_a_time(self):
        self.serve()
        self.http.deploy("f", scale(2), "?sm_partition=12").good()
        self.http.deploy("one", scale(3), "?sm_partition=12&max_instances=1").good()
        for name in ("f", "one"):
            self.ask(name)  # the model is there
        # One after the other the runs take 1.6 s at least: each has its SMs for 0.1 s. Eight at a time take an eighth.
        one_at_a_time = self.ask_many("one", 16)
        self.assertGreaterEqual(one_at_a_time, 16 * RUN_SECONDS)
        self.assertLess(self.ask_many("f", 16), one_at_a_time)

    def test_slices_of_a_fan_out_compute_at_a_time(self):
        self.serve()
        self.http.deploy("f", scale(2), "?sm_partition=12").good()
        self.http.deploy("one", scale(3), "?sm_partition=12&max_instances=1").good()
        took, x = {}, np.arange(64, dtype=np.float32).reshape(16, 4)
        for name in ("f", "one"):
            self.http.call("POST", "/v2/troupe/workflows", FAN_OUT.format(name=name)).good()
            self.ask(name)  # the model is there
            began = time.monotonic()
            shape, _ = infer_binary(self.http, f"fan-{name}", {"x": x})["y"]
            took[name] = time.monotonic() - began
            self.assertEqual(shape, [16, 4])
        self.assertGreaterEqual(took["one"], 16 * RUN_SECONDS)
        self.assertLess(took["f"], took["one"], "slices of one step compute beside each other")

    @unittest.skipUnless(MODELS.is_dir(), f"{MODELS} is absent; set TROUPE_SHARED_DIR")
    def test_answers_have_the_same_bytes_alone_beside_others_and_swapped(self):
        # Four networks of 161 MiB in all, which the GPU does not hold at once whatever runs beside what, on 24 % of it each.
        self.daemon = self.start("one", "all", gpus=1, gpu_memory="156MiB", host_region="1GiB", concurrency=4,
                                 log_level="debug").wait_serving(gpus=1)
        self.http = self.daemon.http
        image = np.random.default_rng(3).random((1, 3, 224, 224), dtype=np.float32)
        inputs, alone = {}, {}
        for name in ("squeezenet", "inception_v1", "densenet121", "resnet50"):
            self.http.deploy(name, (MODELS / f"light_{name}.onnx").read_bytes(), "?sm_partition=24").good()
            (described,) = self.http.get(f"/v2/models/{name}").good().json["inputs"]
            inputs[name] = {described["name"]: image}
            alone[name] = infer_binary(self.http, name, inputs[name])

        def ask(name, times):
            return [infer_binary(self.http, name, inputs[name]) for _ in range(times)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            beside = [(name, pool.submit(ask, name, 6)) for name in alone for _ in range(2)]
            for name, answers in beside:
                for answer in answers.result():
                    self.assertEqual(answer, alone[name], name)
        swaps = len(re.findall(r" swap: GPU 0:", self.daemon.log.read_text()))
        self.assertGreater(swaps, 2 * len(alone), "models came and went between the answers")

    def test_a_quota_is_kept_and_changed_while_requests_flow(self):
        self.serve()
        self.http.deploy("f", scale(2), "?sm_partition=12&quota_limit=20").good()
        self.ask("f")
        # Two runs of 0.1 s in each window of a second: the last of six begins in the third window at the earliest.
        self.assertGreaterEqual(self.ask_many("f", 6), 1.0)
        load = Load(lambda: self.ask("f"), threads=4)
        load.wait(4)
        version = self.shell.json("function", "show", "f")["functions"][0]["record"]["key"]["version"]
        self.shell.text("function", "update", "f", "--quota-limit", "100", "--max-instances", "8")
        load.wait(40)
        load.stop()  # raises when a request failed
        shown = self.shell.json("function", "show", "f")["functions"][0]["record"]
        self.assertEqual(shown["key"]["version"], version)
        self.assertEqual(shown["sharing"]["quota_limit"], 100)

    def test_what_cannot_be_is_refused_before_anything_changes(self):
        self.serve()
        self.http.deploy("f", scale(2), "?sm_partition=12").good()
        for query in ("quota_limit=101", "quota_request=50&quota_limit=40", "gpu_mem=1", "max_instances=9",
                      "sm_partition=0"):
            answer = self.http.deploy("f", scale(2), f"?version=2&sm_partition=12&{query}")
            self.assertEqual(answer.code, 400, query)
        self.assertEqual(len(self.shell.json("function", "show", "f")["functions"]), 1)

    def owned(self, name):
        record = self.shell.json("function", "show", name)["functions"][0]["record"]
        return [place.get("gpu", 0) for place in record.get("places", [])]

    def resident(self, name):
        return self.http.function(name).get("resident_on")

    def owned_soon(self, name, instances):
        """The GPUs on which it owns a part, once it has so many instances."""
        eventually(lambda: len(self.owned(name)) == instances, f"{name} owns {instances} parts of GPUs")
        return self.owned(name)

    def test_a_function_that_requests_time_owns_a_gpu_over_a_restart(self):
        self.serve(gpus=2)
        for name, factor in (("a", 2), ("b", 3)):
            self.http.deploy(name, scale(factor), "?sm_partition=100&quota_request=60").good()
        first, second = self.owned_soon("a", 1), self.owned_soon("b", 1)
        self.assertNotEqual(first, second, "60 % and 60 % of the time are more than one GPU has")
        self.assertIn("owns       100 % of the SMs for 60 % of the time on one GPU", self.shell.text("function", "show", "a"))
        load = Load(lambda: self.ask("a"), threads=2)
        load.wait(4)
        self.http.deploy("c", scale(4), "?sm_partition=100&quota_request=60").good()
        eventually(lambda: "bound late" in self.shell.text("function", "show", "c"), "c says why it owns nothing")
        self.ask("c")
        self.shell.text("function", "update", "b", "--quota-request", "none")
        self.owned_soon("b", 0)
        self.assertEqual(self.owned_soon("c", 1), second)
        load.wait(4)
        load.stop()  # raises when a request failed
        self.daemon.kill()
        self.serve(gpus=2)
        # A GPU whose worker comes back later than the other's is its owner's again then.
        eventually(lambda: (self.owned("a"), self.owned("c")) == (first, second), "both own what they owned")
        self.ask("a")

    def test_what_a_function_owns_follows_its_load(self):
        self.serve(gpus=2, owning="always")
        self.http.deploy("f", scale(2), "?sm_partition=12&quota_request=auto").good()
        self.ask("f")
        status = lambda: self.shell.json("autoscale", "status", "f")["scaling"]
        load = Load(lambda: self.ask("f"), threads=2)
        # Two clients without a pause are 20 requests a second, and an instance of 12 % serves ten.
        eventually(lambda: len(self.owned("f")) >= 2, "f owns parts of GPUs by its load")
        load.wait(10)
        self.assertIn("observed", status()["basis"])
        self.assertIn("by its load", self.shell.text("function", "show", "f"))
        self.assertIn("requests/s are expected", self.shell.text("autoscale", "status", "f"))
        load.stop()  # raises when a request failed
        self.daemon.kill()
        self.serve(gpus=2, owning="always")
        self.assertGreaterEqual(len(self.owned("f")), 2, "what it owned outlives the daemon")
        self.ask("f")
        self.shell.text("function", "update", "f", "--quota-request", "none")
        self.owned_soon("f", 0)
        self.ask("f")

    def test_a_function_whose_requests_wait_for_swaps_comes_to_own_a_part(self):
        # The GPU has room for two of three models, and a model takes 0.1 s to come.
        self.serve(gpu_memory="10MiB", link_bandwidth="40MB", log_level="debug")
        model, weight = dense(4)
        x = np.zeros((1, weight.shape[0]), np.float32)
        for name in ("f", "g", "h"):
            self.http.deploy(name, model if name == "f" else dense(4, seed=ord(name))[0],
                             "?sm_partition=12" + ("&quota_request=auto" if name == "f" else "")).good()
        turns = itertools.count()

        def ask():
            self.http.infer("fgh"[next(turns) % 3], {"x": x})
        load = Load(ask, threads=1)
        eventually(lambda: self.owned("f"), "f owns a part of the GPU, since its requests wait for swaps")
        shown = self.shell.text("function", "show", "f")
        self.assertIn("it owns parts of GPUs", shown)
        self.assertIn("own ", self.shell.text("autoscale", "status", "f"))
        eventually(lambda: self.resident("f"), "its model is there")
        load.wait(6)
        swaps = lambda name: len(re.findall(rf" swap: GPU 0: '{name}'", self.daemon.log.read_text()))
        before = {name: swaps(name) for name in "fg"}
        load.wait(12)
        load.stop()  # raises when a request failed
        self.assertEqual(swaps("f"), before["f"], "the model of f stays")
        self.assertGreater(swaps("g"), before["g"], "those of g and h do not")

    def test_runtimes_of_one_gpu_go_by_one_gate(self):
        self.serve(isolation="function", runtimes=3)
        for name in ("a", "b"):
            self.http.deploy(name, scale(2 if name == "a" else 3), "?sm_partition=100").good()
            self.ask(name)
        # Each has all SMs: side by side, in workers of their own, they take as long as one after the other.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            began = time.monotonic()
            for answer in [pool.submit(self.ask_many, name, 4) for name in ("a", "b")]:
                answer.result()
        self.assertGreaterEqual(time.monotonic() - began, 8 * RUN_SECONDS)
        # A worker that is killed while it has the SMs: the other function goes on.
        load = Load(lambda: self.ask("a"), threads=2)
        load.wait(2)
        gpu = self.shell.json("gpu", "show", "one/0")["gpus"][0]
        (pid,) = [int(runtime["pid"]) for runtime in gpu["runtimes"] if runtime.get("key", "").startswith("function/a")]
        os.kill(pid, signal.SIGKILL)
        self.ask_many("b", 4)
        load.wait(4)
        load.stop()


if __name__ == "__main__":
    main()
