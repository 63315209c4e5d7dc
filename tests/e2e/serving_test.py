#!/usr/bin/python3
"""One process with every role serves the handwritten digits: the protocol from end to end, over real sockets."""
import json

import numpy as np

from harness import E2eTest, eventually, main
from harness.client import infer_binary
from harness.networks import digits


class Serving(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all").wait_serving()
        self.http = self.daemon.http
        onnx, self.images, self.labels = digits()
        deployed = self.http.deploy("digits", onnx, "?tenant=school&deadline_ms=50&percentile=95").good().json
        self.assertEqual(deployed["record"]["key"], {"name": "digits", "version": "1"})

    def classify(self, images):
        rows = self.http.infer("digits", {"image": images})["probabilities"]
        return np.array(rows).reshape(len(images), 10)

    def test_held_out_digits_are_classified(self):
        right = sum(int((self.classify(self.images[i:i + 36]).argmax(1) == self.labels[i:i + 36]).sum())
                    for i in range(0, 360, 36))
        self.assertGreaterEqual(right / 360, 0.97, f"{right} of 360")

    def test_every_batch_size_gives_the_same_answers(self):
        whole = self.classify(self.images[:24])
        for batch in (1, 2, 5, 16):
            part = self.classify(self.images[3:3 + batch])
            np.testing.assert_allclose(part, whole[3:3 + batch], rtol=1e-3, atol=1e-6, err_msg=f"batch {batch}")

    def test_binary_tensors_give_the_same_answers(self):
        expected = self.classify(self.images[:7])
        shape, data = infer_binary(self.http, "digits", {"image": self.images[:7]})["probabilities"]
        self.assertEqual(shape, [7, 10])
        np.testing.assert_allclose(np.frombuffer(data, np.float32).reshape(7, 10), expected, rtol=1e-5, atol=1e-7)

    def test_inputs_larger_than_a_message(self):
        # 1,000 images are 256 KB: they go through the arena, not inside a message.
        many = np.tile(self.images[:100], (10, 1, 1, 1))
        np.testing.assert_array_equal(self.classify(many).argmax(1), np.tile(self.classify(self.images[:100]).argmax(1), 10))

    def test_raw_request(self):
        answer = self.http.call("POST", "/v2/models/digits/infer", self.images[0].tobytes(),
                                {"Inference-Header-Content-Length": "0"})
        # Height and width are fixed and the batch is the only free dimension: one image.
        size = int(answer.good().headers["Inference-Header-Content-Length"])
        self.assertEqual(int(np.frombuffer(answer.body[size:], np.float32).argmax()), int(self.labels[0]))

    def test_metadata_configuration_and_statistics(self):
        self.assertEqual(self.http.get("/v2").good().json["name"], "troupe")
        self.assertEqual(self.http.get("/v2/health/live").good().json["live"], True)
        self.assertEqual(self.http.get("/v2/health/ready").good().json["ready"], True)
        metadata = self.http.get("/v2/models/digits").good().json
        self.assertEqual(metadata["versions"], ["1"])
        self.assertEqual(metadata["inputs"], [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}])
        self.assertEqual(metadata["outputs"], [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}])
        self.assertEqual(self.http.get("/v2/models/digits/versions/1/ready").good().json, {"name": "digits", "ready": True})
        config = self.http.get("/v2/models/digits/config").good().json["parameters"]
        self.assertEqual(config["tenant"]["string_value"], "school")
        self.assertEqual(float(config["deadline_ms"]["string_value"]), 50)
        self.assertEqual(float(config["percentile"]["string_value"]), 95)
        # A request that names only a percentile has the default deadline.
        slo = self.http.deploy("digits-again", digits()[0], "?percentile=99").good().json["record"]["slo"]
        self.assertEqual((slo["deadline_ns"], slo["percentile"]), ("200000000", 99))
        for image in self.images[:3]:
            self.classify(image[None])
        eventually(lambda: self.http.served("digits") == (3, 0), "the statistics count three successes")

    def test_request_id_and_chosen_outputs(self):
        body = {"id": "forty-two", "inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                               "data": [self.images[0].tolist()]}],
                "outputs": [{"name": "probabilities"}]}
        answer = self.http.post("/v2/models/digits/versions/1/infer", body).good().json
        self.assertEqual((answer["id"], answer["model_name"], answer["model_version"]), ("forty-two", "digits", "1"))
        self.assertEqual([output["name"] for output in answer["outputs"]], ["probabilities"])

    def test_unload_stops_serving_and_load_starts_it_again(self):
        index = self.http.post("/v2/repository/index").good().json
        self.assertEqual([(entry["name"], entry["state"]) for entry in index], [("digits", "READY")])
        self.http.post("/v2/repository/models/digits/unload").good()
        eventually(lambda: self.http.get("/v2/models/digits/ready").code == 503, "the function is no longer ready")
        self.assertEqual(self.http.post("/v2/repository/index").good().json[0]["state"], "UNAVAILABLE")
        self.assertEqual(self.http.post("/v2/repository/index", {"ready": True}).good().json, [])
        refused = self.http.ask("digits", {"image": self.images[:1]})
        self.assertIn(refused.code, (400, 503), refused.body)
        self.assertIn("unloaded", refused.error)
        self.http.post("/v2/repository/models/digits/load").good()
        eventually(lambda: self.http.get("/v2/models/digits/ready").code == 200, "the function is ready again")
        self.assertEqual(int(self.classify(self.images[:1]).argmax()), int(self.labels[0]))

    def test_versions_live_side_by_side(self):
        onnx, _, _ = digits()
        second = self.http.deploy("digits", onnx).good().json
        self.assertEqual(second["record"]["key"]["version"], "2")
        eventually(lambda: self.http.get("/v2/models/digits").good().json["versions"] == ["1", "2"], "both are listed")
        for version in ("1", "2"):
            body = {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                "data": self.images[0].reshape(-1).tolist()}]}
            answer = self.http.post(f"/v2/models/digits/versions/{version}/infer", body).good().json
            self.assertEqual(answer["model_version"], version)
        index = self.http.post("/v2/repository/index").good().json
        self.assertEqual([(entry["version"], entry["state"]) for entry in index], [("1", "READY"), ("2", "READY")])
        for path in ("/v2/models/digits/stats", "/v2/models/stats"):
            statistics = self.http.get(path).good().json["model_stats"]
            self.assertEqual([(entry["version"], int(entry["inference_count"])) for entry in statistics],
                             [("1", 1), ("2", 1)], path)
        self.http.post("/v2/repository/models/digits/unload").good()
        eventually(lambda: self.http.post("/v2/repository/index", {"ready": True}).good().json == [],
                   "no version is served")

    def test_operations_port(self):
        operations = self.daemon.operations
        eventually(lambda: operations.get("/healthz").code == 200, "the daemon is healthy")
        self.classify(self.images[:1])
        eventually(lambda: "troupe_functions 1" in operations.get("/metrics").body.decode(), "the metrics count it")
        metrics = operations.get("/metrics").body.decode()
        for name in ("troupe_gpu_busy_share{", "troupe_gpu_busy_share_variance{", "troupe_node_swaps_total{",
                     "troupe_router_queue", "troupe_gpu_resident_models{"):
            self.assertIn(name, metrics)
        self.assertIn('function="digits"', self.http.get("/metrics").body.decode() + metrics)
        self.assertEqual(operations.get("/loglevel").good().json["level"], "info")
        operations.call("PUT", "/loglevel", b"debug").good()
        self.assertEqual(operations.get("/loglevel").good().json["level"], "debug")
        self.assertEqual(operations.call("PUT", "/loglevel", b"loud").code, 400)

    def test_keep_alive_and_pipelining(self):
        body = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                       "data": self.images[0].reshape(-1).tolist()}]}).encode()
        infer = (b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with self.http.connect() as connection:
            connection.sendall(infer + infer + live)
            answers = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 3, answers)
        self.assertEqual(answers.count(b'"probabilities"'), 2, answers)
        self.assertTrue(answers.rstrip().endswith(b'}') and b'"live"' in answers[answers.rindex(b"HTTP/1.1"):])


if __name__ == "__main__":
    main()
