#!/usr/bin/python3
"""What hostile, wrong or impatient clients get: an error that says what was expected, and a daemon that goes on."""
import json
import os
import re
import signal
import threading

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import E2eTest, eventually, main
from harness.client import infer_body
from harness.networks import dense, digits, scale, serialize, value

X = {"x": np.ones((1, 4), np.float32)}


class BadInput(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", gpu_memory="32MiB").wait_serving()
        self.http = self.daemon.http
        self.http.deploy("double", scale(2)).good()
        self.addCleanup(self.still_serves)

    def still_serves(self):
        self.assertEqual(self.http.infer("double", X)["y"], [2.0] * 4)

    def refused(self, answer, code, *expected):
        self.assertEqual(answer.code, code, answer.body)
        for text in expected:
            self.assertIn(text, answer.error)

    # --- models ---

    def test_files_that_are_no_networks(self):
        good, _, _ = digits()
        hostile = {"empty": (b"", "empty"), "text": (b"hello, world", ""), "truncated": (good[:len(good) // 2], ""),
                   "overwritten": (good[:100] + b"\xff" * 2000 + good[2100:], "")}
        for name, (onnx_bytes, said) in hostile.items():
            with self.subTest(name):
                self.refused(self.http.deploy("hostile", onnx_bytes), 400, said)
        self.assertEqual(self.http.get("/v2/models/hostile").code, 404)

    def test_networks_that_make_no_sense(self):
        x, y = value("x", 1, 4), value("y", 1, 4)
        relu, add = helper.make_node("Relu", ["b"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["b"], name="second")
        cyclic = serialize([relu, add, helper.make_node("Add", ["x", "a"], ["y"])], [x], [y])
        missing = serialize([helper.make_node("Add", ["x", "weight"], ["y"], name="adder")], [x], [y])
        negative = onnx.load_from_string(scale(2))
        negative.graph.initializer[0].dims.extend([-3])
        huge = onnx.load_from_string(scale(2))
        huge.graph.initializer[0].dims.extend([1 << 20, 1 << 20])
        outside = onnx.load_from_string(scale(2))
        weight = outside.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="../../../../etc/passwd")
        for name, file, said in (("cyclic", cyclic, "cycl"), ("missing", missing, "weight"),
                                 ("negative", negative.SerializeToString(), "factor"),
                                 ("2^40 elements", huge.SerializeToString(), "factor"),
                                 ("outside of its folder", outside.SerializeToString(), "factor")):
            with self.subTest(name):
                self.refused(self.http.deploy("senseless", file), 400, said)

    def test_one_error_lists_all_operators_that_are_not_supported(self):
        nodes = [helper.make_node("Det", ["x"], ["a"], name="one"), helper.make_node("Unique", ["x"], ["b"], name="two"),
                 helper.make_node("FancyThing", ["a", "b"], ["y"], name="three", domain="com.example")]
        graph = helper.make_graph(nodes, "unsupported", [value("x", 1, 4)], [value("y", 1, 4)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)])
        model.ir_version = 8
        self.refused(self.http.deploy("unsupported", model.SerializeToString()), 501, "Unique", "Det", "FancyThing")

    def test_step_larger_than_any_gpu(self):
        # A GPU has 32 MiB, of which a stage's weights take at most three quarters.
        answer = self.http.deploy("large", dense(40)[0])
        self.refused(answer, 400, "stages")
        self.assertRegex(answer.error, r"at most 24(\.\d+)? ?MiB")
        self.assertRegex(answer.error, r"MatMul 'y' alone has 40(\.\d+)? ?MiB")
        self.assertEqual(self.http.get("/v2/models/large").code, 404)

    def test_deployments_with_wrong_parameters(self):
        for query, said in (("?deadline_ms=soon", "deadline_ms"), ("?percentile=101", "percentile"), ("?color=red", "color"),
                            ("?version=x", "version")):
            with self.subTest(query):
                self.refused(self.http.deploy("double", scale(2), query), 400, said)
        self.refused(self.http.deploy("no%20spaces", scale(2)), 400, "no spaces")

    # --- requests ---

    def infer(self, body, headers=None):
        return self.http.call("POST", "/v2/models/double/infer",
                              body if isinstance(body, (bytes, str)) else json.dumps(body), headers)

    def tensor(self, **changes):
        return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4], **changes}]}

    def test_requests_that_do_not_fit_the_function(self):
        cases = {
            "unknown name": (self.tensor(name="z"), "x"),
            "wrong type": (self.tensor(datatype="INT64"), "FP32"),
            "no type": (self.tensor(datatype="FP33"), "FP33"),
            "wrong rank": (self.tensor(shape=[4]), "4"),
            "wrong width": (self.tensor(shape=[1, 5], data=[0] * 5), "4"),
            "fewer data than the shape says": (self.tensor(data=[1, 2, 3]), "4"),
            "more data than the shape says": (self.tensor(data=[1, 2, 3, 4, 5]), "4"),
            "negative dimension": (self.tensor(shape=[-1, 4]), "-1"),
            "more elements than there are numbers": (self.tensor(shape=[1 << 62, 4]), ""),
            "data of another kind": (self.tensor(data=["a", "b", "c", "d"]), "'x'"),
            "unknown output": ({**self.tensor(), "outputs": [{"name": "z"}]}, "z"),
            "no inputs": ({"inputs": []}, "x"),
            "the same input twice": ({"inputs": self.tensor()["inputs"] * 2}, "x"),
            "no object": ([], ""),
            "broken JSON": (b'{"inputs": [', ""),
            "no JSON": (b"\x00\x01\x02", ""),
            "nothing": (b"", ""),
        }
        for name, (body, said) in cases.items():
            with self.subTest(name):
                self.refused(self.infer(body), 400, said)

    def test_binary_requests_whose_sizes_do_not_add_up(self):
        def ask(claimed, data, header=None):
            head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                                           "parameters": {"binary_data_size": claimed}}]}).encode()
            return self.infer(head + data, {"Inference-Header-Content-Length": header or str(len(head))})
        self.refused(ask(12, bytes(12)), 400, "16")
        self.refused(ask(16, bytes(15)), 400)
        self.refused(ask(16, bytes(17)), 400)
        self.refused(ask(16, bytes(16), "100000"), 400)
        self.refused(ask(16, bytes(16), "-1"), 400)
        self.refused(ask(16, bytes(16), "many"), 400)
        self.assertEqual(ask(16, bytes(16)).code, 200)

    def test_paths_and_methods(self):
        self.refused(self.http.ask("absent", X), 404, "absent")
        self.refused(self.http.get("/v2/models/absent"), 404, "absent")
        self.refused(self.http.get("/v2/models/double/versions/7"), 404, "7")
        self.refused(self.http.get("/v3"), 404, "/v3")
        self.refused(self.http.remove("absent"), 404, "absent")
        answer = self.http.get("/v2/models/double/infer")
        self.refused(answer, 405)
        self.assertEqual(answer.headers["Allow"], "POST")

    def test_body_limits(self):
        with self.http.connect() as connection:
            connection.sendall(b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(4096).split(b"\r\n")[0])
        with self.http.connect() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n")
            self.assertIn(b" 431 ", connection.recv(4096).split(b"\r\n")[0])


class Impatience(E2eTest):
    """Requests that cannot run, because their worker stands still; it is not hung for long enough to be killed."""

    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", hang="10m", swap_ahead=2, concurrency=1, measure="requests").wait_serving()
        self.http = self.daemon.http
        self.http.deploy("double", scale(2)).good()
        self.http.infer("double", X)
        self.worker = self.daemon.workers()[0]
        os.kill(self.worker, signal.SIGSTOP)
        self.answers, self.threads = [], []

    def go_on(self):
        os.kill(self.worker, signal.SIGCONT)
        for thread in self.threads:
            thread.join(90)
            self.assertFalse(thread.is_alive(), "a request hangs")

    def ask_in_background(self, count, parameters=None):
        for _ in range(count):
            self.threads.append(threading.Thread(
                target=lambda: self.answers.append(self.http.ask("double", X, parameters)), daemon=True))
            self.threads[-1].start()
        eventually(lambda: self.at_the_node() == count, "the requests are at the node")

    def at_the_node(self):
        load = self.http.loads()["one"]
        return int(load["queued"]) + int(load["running"])

    def test_removed_while_requests_wait(self):
        self.ask_in_background(6)
        self.http.remove("double").good()
        eventually(lambda: len(self.answers) >= 4, "a request that no GPU has yet is answered at once")
        self.assertEqual({answer.code for answer in self.answers}, {404})
        self.go_on()
        self.assertLessEqual({answer.code for answer in self.answers}, {200, 404})
        self.assertEqual(self.http.ask("double", X).code, 404)

    def test_timeout_ends_a_request(self):
        self.ask_in_background(3)
        late = self.http.ask("double", X, {"timeout": 20000})
        self.assertEqual(late.code, 503, late.body)
        self.assertNotIn("Retry-After", late.headers)
        self.go_on()
        self.assertEqual([answer.code for answer in self.answers], [200] * 3)

    def test_timeout_of_what_a_gpu_holds_already(self):
        late = self.http.ask("double", X, {"timeout": 20000})
        self.assertEqual(late.code, 503, late.body)
        self.go_on()
        self.assertEqual(self.http.infer("double", X)["y"], [2.0] * 4)

    def test_a_client_that_goes_away_cancels_its_requests(self):
        body = infer_body(X).encode()
        head = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        connections = [self.http.connect() for _ in range(6)]
        for connection in connections:
            connection.sendall(head + body)
        eventually(lambda: self.at_the_node() == 6, "the requests are at the node")
        for connection in connections:
            connection.close()
        eventually(lambda: self.at_the_node() <= 2, "the requests that waited at the node are gone before the GPU goes on")
        self.go_on()
        eventually(lambda: self.at_the_node() == 0, "the node has nothing left to do")
        self.assertLessEqual(int(self.http.loads()["one"]["served"]), 3, "a cancelled request was run")

class Priority(E2eTest):
    def test_urgent_requests_run_first(self):
        # Requests run one at a time, so that only the node's order decides which model comes next.
        daemon = self.start("one", "all", hang="10m", swap_ahead=1, measure="requests", log_level="debug").wait_serving()
        http, threads = daemon.http, []
        for seed, name in enumerate(("first", "patient", "urgent")):
            http.deploy(name, dense(4, seed)[0]).good()
        worker = daemon.workers()[0]
        os.kill(worker, signal.SIGSTOP)

        def ask(name, priority):
            x = {"x": np.ones((1, 1024), np.float32)}
            self.assertEqual(http.ask(name, x, {"priority": priority}).code, 200)
        # The GPU has the model of the first request; the urgent request passes those that wait.
        order = [("first", 0), ("first", 0), ("patient", 5), ("urgent", 1)]
        for count, request in enumerate(order, 1):
            threads.append(threading.Thread(target=ask, args=request, daemon=True))
            threads[-1].start()
            eventually(lambda: sum(int(http.loads()["one"][key]) for key in ("queued", "running")) == count,
                       "the request is at the node")
        os.kill(worker, signal.SIGCONT)
        for thread in threads:
            thread.join(90)
            self.assertFalse(thread.is_alive(), "a request hangs")
        self.assertEqual(re.findall(r" swap: GPU 0: '(\w+)' ", daemon.log.read_text()), ["first", "urgent", "patient"])


if __name__ == "__main__":
    main()
