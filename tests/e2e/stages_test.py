#!/usr/bin/python3
"""A model that no GPU holds is served in stages: as a pipeline over two GPUs, or in turns on one; by the clients, the shell and the
files that serve functions, though workers, a node and the manager are killed."""
import numpy as np
from onnx import helper, numpy_helper

from harness import E2eTest, Load, eventually, main
from harness.client import infer_binary
from harness.networks import dense, scale, serialize, value
from harness.served_models import archived, check
from harness.shell import Shell
from harness.workflows import pattern

LAYERS = 12  # of 4 MiB each
WIDTH = 1024
FUNCTION = "kind: function\nname: big\nmodel: big.onnx\ndeadline: 5s\n"


def layers(shift):
    """y = x [batch, 1024] rolled in each of the layers, by `shift` in the first one and by one more in each that follows."""
    names = ["x", *(f"t{i}" for i in range(1, LAYERS)), "y"]
    return serialize([helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(LAYERS)],
                     [value("x", "batch", WIDTH)], [value("y", "batch", WIDTH)],
                     [numpy_helper.from_array(np.roll(np.eye(WIDTH, dtype=np.float32), shift + i, axis=1), f"w{i}")
                      for i in range(LAYERS)])


def rolled(x, shift):
    return np.roll(x, sum(range(shift, shift + LAYERS)), axis=1)


class Stages(E2eTest):
    def begin(self, gpus):
        self.daemon = self.start("all", "all", gpus=gpus, gpu_memory="32MiB").wait_serving(gpus=gpus)
        self.http = self.daemon.http
        self.shell = Shell(self.daemon.address("manager"), self.directory)

    def deploy(self, shift=1):
        return self.http.deploy("big", layers(shift)).good().json

    def wait_ready(self):
        eventually(lambda: self.http.get("/v2/models/big/ready").code == 200, "the model can be called")

    def ask(self, shift=1, seed=0, rows=3):
        x = pattern(rows, seed)
        shape, data = infer_binary(self.http, "big", {"x": x})["y"]
        self.assertEqual(shape, [rows, 1024])
        self.assertEqual(data, rolled(x, shift).tobytes())

    def stages(self):
        return self.shell.json("function", "show", "big")["functions"]

    def swaps(self):
        return sum(len(gpu.get("swaps", [])) for gpu in self.shell.json("gpu", "list")["gpus"])

    def names(self):
        return [function["record"]["key"]["name"] for function in self.shell.json("function", "list").get("functions", [])]

    def test_two_gpus_are_a_pipeline(self):
        self.begin(gpus=2)
        deployed = self.deploy()
        self.assertEqual(deployed["record"]["key"], {"name": "big", "version": "1"})
        self.assertEqual(int(deployed["record"]["weights_bytes"]), LAYERS << 22)
        self.assertEqual([tensor["name"] for tensor in deployed["record"]["outputs"]], ["y"])
        self.wait_ready()
        for seed in range(4):
            self.ask(seed=seed)
        self.assertEqual(self.names(), ["big.1", "big.2"])
        self.assertEqual(sorted(gpu for stage in self.stages() for gpu in stage["resident_on"]), ["all/0", "all/1"])
        self.assertIn("stage      2 of 2 of big", self.shell.text("function", "show", "big"))
        swaps = self.swaps()
        for seed in range(10):
            self.ask(seed=seed)
        self.assertEqual(self.swaps(), swaps, "each GPU keeps its stage")
        load = Load(self.ask)
        load.wait(20)
        for _ in range(2):
            self.daemon.kill_workers()
            load.wait(20)
        load.stop()  # raises when a request failed
        self.daemon.kill()
        self.begin(gpus=2)
        self.wait_ready()
        self.ask(seed=5)

    def test_one_gpu_has_them_in_turns(self):
        self.begin(gpus=1)
        self.deploy()
        self.wait_ready()
        for seed in range(3):
            self.ask(seed=seed)
        self.assertEqual(sum(len(stage.get("resident_on", [])) for stage in self.stages()), 1)

    def test_over_two_nodes(self):
        front = self.start("front", "manager,gateway", replicas=1)
        nodes = [self.start(f"node-{i}", "node", manager=front.address("manager"), gpus=1, gpu_memory="32MiB") for i in range(2)]
        front.wait_serving(gpus=0)
        self.http = front.http
        self.shell = Shell(front.address("manager"), self.directory)
        self.deploy()
        self.wait_ready()
        for seed in range(3):
            self.ask(seed=seed)
        load = Load(self.ask)
        load.wait(10)
        for node in nodes:
            node.kill_workers()
            load.wait(10)
        load.stop()

    def test_versions_come_and_go_whole(self):
        self.begin(gpus=2)
        self.deploy(shift=1)
        self.deploy(shift=2)
        self.wait_ready()
        self.ask(shift=2)
        refused = self.http.call("DELETE", "/v2/troupe/functions/big.1?version=2")
        self.assertEqual(refused.code, 400)
        self.assertIn(b"is stage 1 of 'big'", refused.body)
        self.http.call("DELETE", "/v2/troupe/functions/big").good()
        self.wait_ready()
        self.ask(shift=1)
        self.assertEqual(self.names(), ["big.1", "big.2"])
        self.assertIn("big version 1 is removed", self.shell.text("function", "remove", "big"))
        self.assertEqual(self.names(), [])
        self.assertEqual(self.http.get("/v2/models/big").code, 404)

    def test_files_name_the_model(self):
        self.begin(gpus=2)
        (self.directory / "big.onnx").write_bytes(layers(1))
        path = self.directory / "cluster.yaml"
        path.write_text(FUNCTION)
        self.assertIn("+ function big version 1", self.shell.text("apply", "-f", str(path)))
        self.wait_ready()
        self.ask()
        self.assertEqual(self.shell.text("apply", "-f", str(path)), "0 changes, 1 unchanged\n")
        self.assertEqual(self.names(), ["big.1", "big.2"])
        self.assertEqual({stage["record"]["key"]["version"] for stage in self.stages()}, {"1"})
        exported = self.shell.text("export")
        self.assertIn("name: big\n", exported)
        self.assertNotIn("big.1", exported)
        path.write_text(FUNCTION + "quota_limit: 80%\n")
        self.shell.text("apply", "-f", str(path))
        self.assertEqual({stage["record"]["sharing"]["quota_limit"] for stage in self.stages()}, {80})
        path.write_text(FUNCTION + "stage_memory: 16MiB\n")
        self.shell.text("apply", "-f", str(path))
        self.wait_ready()
        self.ask()
        self.assertEqual(len(self.stages()), 3)

    def test_what_cannot_be_divided_is_refused_and_leaves_nothing(self):
        self.begin(gpus=1)
        model, _ = dense(40)
        refused = self.http.deploy("big", model)
        self.assertEqual(refused.code, 400, refused.body)
        self.assertIn(b"MatMul 'y' alone has", refused.body)
        refused = self.http.deploy("kept", layers(1), "?state=x%3Dy")
        self.assertEqual(refused.code, 400, refused.body)
        self.assertIn(b"keeps state", refused.body)
        self.assertEqual(self.names(), [])
        self.http.deploy("small", scale(2)).good()
        self.assertEqual(self.names(), ["small"])

    def test_networks_that_were_exported(self):
        self.begin(gpus=2)
        divided = 0
        for name, (model, inputs, expected) in (archived("networks") | archived("exports") | archived("fused_networks")).items():
            with self.subTest(name):
                deployed = self.http.deploy(name, model, f"?stage_memory={len(model) // 2}B")
                if b" alone has " in deployed.body:
                    continue
                divided += "workflow" in deployed.good().json["record"]["stage"]
                eventually(lambda: self.http.get(f"/v2/models/{name}/ready").code == 200, "it can be called")
                check(self, self.http, name, inputs, expected)
        self.assertGreaterEqual(divided, 55)


if __name__ == "__main__":
    main()
