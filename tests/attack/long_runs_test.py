#!/usr/bin/python3
"""A function whose runs last half a minute, beside a quick one on one GPU: its runs are cut, and the other one is served."""
import hashlib
import threading

import numpy as np
from onnx import helper, numpy_helper

from harness import E2eTest, eventually, main
from harness.networks import scale, serialize, value
from harness.shell import Shell

STEPS = 300
X = {"x": np.ones((1, 4), np.float32)}


def chain():
    """y = x through many products: a run can be cut between any two of them."""
    names = ["x", *(f"t{i}" for i in range(1, STEPS)), "y"]
    weight = np.eye(4, dtype=np.float32)
    return serialize([helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(STEPS)],
                     [value("x", "batch", 4)], [value("y", "batch", 4)],
                     [numpy_helper.from_array(weight * np.float32(1 + i / 1024), f"w{i}") for i in range(STEPS)])


class LongRuns(E2eTest):
    def test_a_long_run_is_cut_and_its_neighbour_is_served(self):
        endless = chain()
        profile = self.directory / "profile"
        profile.write_text(f"default 1ms\n{hashlib.sha256(endless).hexdigest()} 30s\n")
        daemon = self.start("one", "all", gpus=1, compute="timed", profile=profile, measure="requests").wait_serving()
        http = daemon.http
        http.deploy("quick", scale(2)).good()
        http.deploy("hostile", endless, "?run_limit_ms=500").good()
        worker = daemon.workers()[0]
        http.infer("quick", X)
        answers = []
        attack = threading.Thread(target=lambda: answers.extend(http.ask("hostile", X) for _ in range(4)))
        attack.start()
        served = 0
        while attack.is_alive():
            http.infer("quick", X)
            served += 1
        attack.join()
        print(f"{served} requests of the quick function were served beside 4 runs of 30 s")
        for answer in answers:
            self.assertEqual(answer.code, 503, answer.body)
            for part in ("'hostile'", "cut", "500 ms", "declared", "run_limit"):
                self.assertIn(part, answer.body.decode())
        # Between any two runs that are cut the quick function has its turn.
        self.assertGreaterEqual(served, len(answers))
        self.assertEqual(daemon.workers()[0], worker, "a cut costs no worker")
        # The page is written once a second.
        eventually(lambda: 'troupe_runs_cut_total{node="one"} 4' in daemon.operations.get("/metrics").good().body.decode(),
                   "the cut runs are counted")
        shell = Shell(daemon.address("manager"), self.directory)
        self.assertIn("run limit  500 ms", shell.text("function", "show", "hostile"))

    def test_limits_that_make_no_sense_are_refused(self):
        http = self.start("one", "all", gpus=1).wait_serving().http
        for limit in ("0", "-1", "0.5", "3600001", "x", ""):
            answer = http.deploy("net", scale(2), f"?run_limit_ms={limit}")
            self.assertEqual(answer.code, 400, limit)
            self.assertRegex(answer.body.decode(), "run[_ ]limit")


if __name__ == "__main__":
    main()
