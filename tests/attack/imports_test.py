#!/usr/bin/python3
"""Files whose constants take long to fold: they wait for their turn, and the model of another client does not."""
import hashlib
import http.client
import threading

import numpy as np
from onnx import helper, numpy_helper

from harness import E2eTest, eventually, main
from harness.client import Answer, TIMEOUT
from harness.networks import scale, serialize, value

BOMBS = 5
POWERS = 60  # powers of 4 Mi elements each: seconds of a core, within the limits of folding
X = {"x": np.ones((1, 4), np.float32)}


def bomb(seed):
    """y = x * 0 + the mean of a tensor that has to be raised to a power many times."""
    nodes = [helper.make_node("Expand", ["base", "size"], ["v0"])]
    nodes += [helper.make_node("Pow", [f"v{i}", "one"], [f"v{i + 1}"]) for i in range(POWERS)]
    nodes += [helper.make_node("ReduceMean", [f"v{POWERS}"], ["mean"], keepdims=0),
              helper.make_node("Mul", ["x", "mean"], ["y"])]
    weights = [numpy_helper.from_array(np.float32(2 + seed), "base"), numpy_helper.from_array(np.float32(1), "one"),
               numpy_helper.from_array(np.int64([1 << 22]), "size")]
    return serialize(nodes, [value("x", "batch", 4)], [value("y", "batch", 4)], weights)


class Imports(E2eTest):
    def deploy_from(self, daemon, address, name, onnx):
        """Deploys as the client at this loopback address."""
        host, port = daemon.address("gateway").rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT, source_address=(address, 0))
        try:
            connection.request("POST", f"/v2/troupe/functions/{name}", onnx)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def waiting(self, daemon):
        """The imports that wait, in their order."""
        imports = daemon.http.get("/v2/troupe/imports").good().json
        return [entry for entry in imports if entry["stage"] == "waiting"]

    def test_five_bombs_of_one_client_and_a_tiny_model_of_another(self):
        daemon = self.start("one", "all").wait_serving()
        bombs = [bomb(seed) for seed in range(BOMBS)]
        digests = {hashlib.sha256(file).hexdigest() for file in bombs}
        ended = []

        def attack(number):
            ended.append(self.deploy_from(daemon, "127.0.0.2", f"bomb-{number}", bombs[number]).code)
        threads = [threading.Thread(target=attack, args=(i,)) for i in range(BOMBS)]
        for thread in threads:
            thread.start()
        # One import runs, and the other four wait: the second importer is kept free for a client that has no import running.
        eventually(lambda: len(self.waiting(daemon)) == BOMBS - 1, "four of the bombs wait")
        waiting = self.waiting(daemon)
        self.assertTrue({entry["onnx_digest"] for entry in waiting} <= digests)
        self.assertEqual([entry["ahead"] for entry in waiting], list(range(len(waiting))))
        last = waiting[-1]["onnx_digest"]
        self.assertEqual(daemon.http.get(f"/v2/troupe/imports/{last}").good().json[0]["onnx_digest"], last)

        self.deploy_from(daemon, "127.0.0.3", "tiny", scale(2)).good()
        self.assertEqual(daemon.http.infer("tiny", X)["y"], [2.0] * 4)
        self.assertGreaterEqual(len(self.waiting(daemon)), 1, "bombs were imported before the tiny model")
        self.assertLess(len(ended), BOMBS)

        for thread in threads:
            thread.join()
        self.assertEqual(ended, [200] * BOMBS)
        self.assertEqual(daemon.http.infer("bomb-1", X)["y"], [3.0] * 4)
        self.assertEqual(daemon.http.get("/v2/troupe/imports").good().json, [])
        self.assertEqual(daemon.http.get(f"/v2/troupe/imports/{last}").code, 404)


if __name__ == "__main__":
    main()
