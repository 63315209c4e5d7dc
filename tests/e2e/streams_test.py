#!/usr/bin/python3
"""Several functions at a time on one GPU, also on parts of its SMs, and a model that passes through a full one layer by layer."""
import hashlib
import random
import re
import threading
import time

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import rolls, scale
from harness.shell import Shell

LAYERS = 10  # of 4 MiB


class Streams(E2eTest):
    def serve(self, functions, **options):
        self.daemon = self.start("one", "all", gpus=1, log_level="debug", **options).wait_serving(gpus=1)
        self.names, self.guard = [f"f{i}" for i in range(functions)], threading.Lock()
        self.random = random.Random(3)
        for i, name in enumerate(self.names):
            self.daemon.http.deploy(name, rolls(LAYERS, i + 1)).good()

    def ask(self, i):
        with self.guard:
            x = np.array([[self.random.random() for _ in range(1024)]], np.float32)
        found = np.array(self.daemon.http.infer(self.names[i], {"x": x})["y"], np.float32)
        np.testing.assert_array_equal(found, np.roll(x, LAYERS * (i + 1)).reshape(-1))

    def ask_any(self):
        with self.guard:
            i = self.random.randrange(len(self.names))
        self.ask(i)

    def swaps(self, name):
        return re.findall(rf"(?:info|debug) swap: .*'{name}'", self.daemon.log.read_text())

    def test_results_stay_right_when_functions_compute_at_a_time(self):
        self.serve(3, gpu_memory="256MiB", concurrency=3)
        load = Load(self.ask_any, threads=4)
        load.wait(120)
        load.stop()

    def test_a_run_has_the_sms_that_its_function_says(self):
        profile = self.directory / "profile"
        profile.write_text("default 20ms\n")
        daemon = self.start("one", "all", gpus=1, compute="timed", profile=profile, gpu_sms=64,
                            concurrency=4).wait_serving(gpus=1)
        daemon.http.deploy("whole", scale(2)).good()
        daemon.http.deploy("eighth", scale(3), "?sm_partition=12&precision=bf16").good()
        shell = Shell(daemon.address("manager"), self.directory)
        self.assertIn("SMs       64; shares of 8, 16, 24, ..., 56, 64", shell.text("gpu", "show", "one/0"))
        shown = shell.text("function", "show", "eighth")
        self.assertIn("precision  bf16", shown)
        self.assertIn("sharing    sm_partition   12 %       declared\n", shown)
        self.assertIn("max_instances  8          default: 100 % / 12 %\n", shown)
        self.assertIn("SM share   8 of 64 SMs on one/0", shown)
        whole = shell.text("function", "show", "whole")
        self.assertIn("sharing    sm_partition   100 %      default: all SMs\n", whole)
        self.assertNotIn("SM share", whole)
        for name, least in (("eighth", 0.160), ("whole", 0.020), ("eighth", 0.160)):
            began = time.monotonic()
            daemon.http.infer(name, {"x": np.zeros((1, 4), np.float32)})
            self.assertGreaterEqual(time.monotonic() - began, least, name)

    def test_a_function_is_updated_while_requests_flow_and_the_next_run_obeys(self):
        profile = self.directory / "profile"
        profile.write_text("default 20ms\n")
        daemon = self.start("one", "all", gpus=1, compute="timed", profile=profile, gpu_sms=64,
                            concurrency=4).wait_serving(gpus=1)
        http, zeros = daemon.http, {"x": np.zeros((1, 4), np.float32)}
        http.deploy("net", scale(2)).good()
        shell = Shell(daemon.address("manager"), self.directory)
        load = Load(lambda: http.ask("net", zeros).good(), threads=3)
        load.wait(10)
        before = daemon.workers()
        self.assertEqual(shell.text("function", "update", "net", "--sm-partition", "50%", "--quota-limit", "80"),
                         "net version 1: sm_partition 50 %, quota_limit 80 %\n")
        load.wait(10)
        updated = http.call("POST", "/v2/troupe/functions/net/sharing?sm_partition=25&max_instances=4").good().json
        self.assertEqual(updated[0]["record"]["sharing"]["quota_limit"], 80)
        load.wait(10)
        # What does not go with the rest is refused, and nothing changes.
        error = shell.error("function", "update", "net", "--sm-partition", "26%", code=2)
        self.assertIn("max_instances is 4, and so many runs of an sm_partition of 26 % take 104 %", error)
        self.assertIn("give 3 instances at most", error)
        self.assertIn("weights take", shell.error("function", "update", "net", "--gpu-mem", "1B", code=2))
        refused = http.call("POST", "/v2/troupe/functions/net/sharing?quota_request=81")
        self.assertEqual(refused.code, 400)
        self.assertIn("quota_limit 80 %", refused.error)
        self.assertEqual({entry["name"]: (entry["value"], entry["source"]) for entry in
                          shell.json("function", "show", "net")["functions"][0]["sharing"]},
                         {"sm_partition": ("25", "DECLARED"), "quota_request": ("0", "DEFAULT"),
                          "quota_limit": ("80", "DECLARED"), "gpu_mem": ("0", "DEFAULT"),
                          "max_instances": ("4", "DECLARED"), "max_batch": ("0", "DEFAULT")})
        load.wait(10)
        self.assertGreaterEqual(load.stop(), 40)
        self.assertEqual(daemon.workers(), before, "no worker was started again")
        # An eighth of the SMs takes eight times as long.
        shell.text("function", "update", "net", "--sm-partition", "12%")
        began = time.monotonic()
        http.infer("net", zeros)
        self.assertGreaterEqual(time.monotonic() - began, 0.160)
        versions = [entry["record"]["key"]["version"] for entry in shell.json("function", "list")["functions"]]
        self.assertEqual(versions, ["1"])

    def test_what_would_be_late_goes_before_what_can_wait(self):
        # While `first` computes for two seconds, the 40 MiB of `coming` begin to come, which takes three. Then `here` could
        # compute at once for four seconds, which is longer than `coming` can wait.
        models = {"first": rolls(1, 1), "here": rolls(1, 2), "coming": rolls(LAYERS, 3)}
        took = {"first": "2s", "here": "4s", "coming": "20ms"}
        profile = self.directory / "profile"
        profile.write_text("".join(f"{hashlib.sha256(onnx).hexdigest()} {took[name]}\n" for name, onnx in models.items()))
        http = self.start("one", "all", gpus=1, compute="timed", profile=profile, gpu_memory="256MiB", measure="requests",
                          link_bandwidth="13MB").wait_serving(gpus=1).http
        for name, deadline in (("first", 60), ("here", 30), ("coming", 5)):
            http.deploy(name, models[name], f"?deadline_ms={deadline}000").good()
        ended = []

        def ask(name):
            http.infer(name, {"x": np.zeros((1, 1024), np.float32)})
            ended.append(name)
        for name in ("first", "here"):  # both are on the GPU, and the worker knows how long they take
            ask(name)
        threads = [threading.Thread(target=ask, args=(name,)) for name in models]
        threads[0].start()
        eventually(lambda: int(http.loads()["one"]["running"]) == 1, "the first one computes")
        for thread in (threads[2], threads[1]):
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(ended, ["first", "here", "first", "coming", "here"])

    def test_a_model_that_is_rarely_used_evicts_no_other(self):
        # Two models fit on the GPU; the third one has room only for a window of its layers.
        self.serve(3, gpu_memory="112MiB", by_layer="idle", measure="requests")
        self.ask(2)
        for i in (0, 1, 0, 1):
            self.ask(i)
        before = [len(self.swaps(name)) for name in self.names]
        for _ in range(5):
            for i in (2, 0, 1):
                self.ask(i)
        self.assertEqual([len(self.swaps(name)) for name in self.names], before, "a model was swapped in")


if __name__ == "__main__":
    main()
