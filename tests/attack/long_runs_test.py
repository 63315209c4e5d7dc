#!/usr/bin/python3
"""A function whose runs last half a minute, beside a quick one on one GPU: its runs are cut, and the other one is served.

The other one waits for a run as long as that run's limit says, and an eighth of it more (docs/functions.md). Its
requests are timed by the client, so a bound on them allows a second of slack beyond that, for a busy machine.
"""
import hashlib
import re
import threading
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from harness import E2eTest, eventually, main
from harness.networks import scale, serialize, value
from harness.shell import Shell

STEPS = 300
SLACK = 1.0  # seconds
ENOUGH = 32  # runs from which a limit is learned (node/requests/run_limit.hpp)
TRIPS = 100000  # the most that a loop may make
WIDTH = 1024
X = {"x": np.ones((1, 4), np.float32)}


def chain():
    """y = x through many products: a run can be cut between any two of them."""
    names = ["x", *(f"t{i}" for i in range(1, STEPS)), "y"]
    weight = np.eye(4, dtype=np.float32)
    return serialize([helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(STEPS)],
                     [value("x", "batch", 4)], [value("y", "batch", 4)],
                     [numpy_helper.from_array(weight * np.float32(1 + i / 1024), f"w{i}") for i in range(STEPS)])


def loop():
    """y = x through three products for each of the trips that the input `trips` asks for: one trip takes less than a
    millisecond, and the most of them half a minute."""
    nodes = [helper.make_node("MatMul", [source, "w"], [sink]) for source, sink in ("va", "ab", "bn")]
    flags = {"type": TensorProto.BOOL}
    body = helper.make_graph([*nodes, helper.make_node("Identity", ["go"], ["on"])], "body",
                             [value("trip", type=TensorProto.INT64), value("go", **flags), value("v", 1, WIDTH)],
                             [value("on", **flags), value("n", 1, WIDTH)])
    return serialize([helper.make_node("Squeeze", ["trips"], ["most"]),
                      helper.make_node("Loop", ["most", "", "x"], ["y"], body=body)],
                     [value("trips", 1, type=TensorProto.INT64), value("x", 1, WIDTH)], [value("y", 1, WIDTH)],
                     [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w")])


class LongRuns(E2eTest):
    def waits_beside(self, http, runs, ask):
        """(answers, seconds): those of `ask`, called so often; what requests of the quick function took meanwhile."""
        answers, waits = [], []
        attack = threading.Thread(target=lambda: answers.extend(ask() for _ in range(runs)))
        attack.start()
        while attack.is_alive():
            begin = time.monotonic()
            http.infer("quick", X)
            waits.append(time.monotonic() - begin)
        attack.join()
        # Between any two runs that are cut the quick function has its turn.
        self.assertGreaterEqual(len(waits), runs)
        return answers, waits

    def check_waits(self, waits, limit):
        self.assertLess(max(waits), limit * 9 / 8 + SLACK,
                        f"the quick function waited longer than the limit of {limit} s allows")

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
        answers, waits = self.waits_beside(http, 4, lambda: http.ask("hostile", X))
        print(f"{len(waits)} requests of the quick function were served beside 4 runs of 30 s with a declared limit of "
              f"0.5 s; the longest took {max(waits):.2f} s")
        for answer in answers:
            self.assertEqual(answer.code, 503, answer.body)
            for part in ("'hostile'", "cut", "500 ms", "declared", "run_limit"):
                self.assertIn(part, answer.body.decode())
        self.check_waits(waits, 0.5)
        self.assertEqual(daemon.workers()[0], worker, "a cut costs no worker")
        # The page is written once a second.
        eventually(lambda: 'troupe_runs_cut_total{node="one"} 4' in daemon.operations.get("/metrics").good().body.decode(),
                   "the cut runs are counted")
        shell = Shell(daemon.address("manager"), self.directory)
        self.assertIn("run limit  500 ms", shell.text("function", "show", "hostile"))

    def test_a_function_that_was_quick_is_cut_at_what_its_runs_have_taught(self):
        http = self.start("one", "all", gpus=1).wait_serving().http
        http.deploy("quick", scale(2)).good()
        http.deploy("hostile", loop()).good()
        http.infer("quick", X)

        def ask(trips):
            return http.ask("hostile", {"trips": np.array([trips], np.int64), "x": np.ones((1, WIDTH), np.float32)})
        for _ in range(ENOUGH):
            self.assertEqual(ask(1).good().json["outputs"][0]["data"], [1.0] * WIDTH)
        answers, waits = self.waits_beside(http, 3, lambda: ask(TRIPS))
        limits = []
        for answer in answers:
            self.assertEqual(answer.code, 503, answer.body)
            self.assertIn("learned from its runs", answer.error)
            limits.append(float(re.search(r"its run limit is ([0-9.]+) s,", answer.error).group(1)))
        print(f"{len(waits)} requests of the quick function were served beside 3 long runs with a learned limit of "
              f"{max(limits):g} s; the longest took {max(waits):.2f} s")
        self.assertGreaterEqual(min(limits), 1)
        self.assertLess(max(limits), 10, "the limit is not the one of functions of which too few runs are known")
        self.check_waits(waits, max(limits))

    def test_limits_that_make_no_sense_are_refused(self):
        http = self.start("one", "all", gpus=1).wait_serving().http
        for limit in ("0", "-1", "0.5", "3600001", "x", ""):
            answer = http.deploy("net", scale(2), f"?run_limit_ms={limit}")
            self.assertEqual(answer.code, 400, limit)
            self.assertRegex(answer.body.decode(), "run[_ ]limit")


if __name__ == "__main__":
    main()
