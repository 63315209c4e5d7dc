#!/usr/bin/python3
"""Models of opset 18 to 23 as exporters write them, and with fused operators as optimisers do: deployed and run by real
daemons, refused by name, or damaged."""
import json
import pathlib
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import main
from harness.client import infer_binary
from harness.networks import dense, scale, value
from harness.served_models import ServedModels, archived
from harness.shell import Shell

COMPUTES_BF16 = {"avx512_bf16", "amx_bf16"} & set(pathlib.Path("/proc/cpuinfo").read_text().split())
X = {"x": np.ones((1, 4), np.float32)}


def networks():
    control = {name: case for name, case in archived("control").items() if name.startswith("network_")}
    return archived("networks") | archived("fused_networks") | archived("exports") | control


def model_of(nodes, opset, inputs=None, outputs=None, weights=(), domains=()):
    graph = helper.make_graph(nodes, "test", inputs or [value("x", 1, 4)], outputs or [value("y", 1, 4)], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains])
    model.ir_version = 9
    return model


class Exports(ServedModels):
    def test_networks_of_each_opset_give_what_onnxruntime_gives(self):
        tried = networks()
        self.assertGreaterEqual(len(tried), 66)
        for name, (model, inputs, expected) in tried.items():
            with self.subTest(name):
                self.http.deploy(name, model).good()
                self.check(name, inputs, expected)

    def test_a_decoder_goes_on_from_its_cache(self):
        """The first request has an empty cache, and each later one a token and the cache that the one before has answered."""
        model, _, _ = networks()["rotary_decoder_dynamo_20"]
        self.http.deploy("decoder", model).good()
        tokens = np.array([[3, 1, 4, 1, 5]], np.int64)

        def ask(first, end, cache):
            given = infer_binary(self.http, "decoder", {
                "input_ids": tokens[:, first:end], "attention_mask": np.ones((1, end), np.int64),
                "position_ids": np.arange(first, end, dtype=np.int64)[None], "past_key": cache[0], "past_value": cache[1]})
            logits, *cache = (np.frombuffer(data, np.float32).reshape(shape)
                              for shape, data in (given[name] for name in ("logits", "present_key", "present_value")))
            return logits, cache
        empty = [np.zeros((1, 2, 0, 8), np.float32)] * 2
        whole, _ = ask(0, 5, empty)
        logits, cache = ask(0, 2, empty)
        for token in range(2, 5):
            logits, cache = ask(token, token + 1, cache)
        self.assertEqual(cache[0].shape, (1, 2, 5, 8))
        np.testing.assert_allclose(logits, whole, rtol=1e-4, atol=1e-5)

    def test_weights_in_files_beside_the_model_are_sent_along(self):
        model, inputs, expected = networks()["vision_transformer_20"]
        external = onnx.load_from_string(model)
        blob = b""
        for tensor in external.graph.initializer:
            if len(tensor.raw_data) < 256:
                continue
            tensor.data_location = TensorProto.EXTERNAL
            for key, entry in (("location", "weights.data"), ("offset", len(blob)), ("length", len(tensor.raw_data))):
                tensor.external_data.add(key=key, value=str(entry))
            blob += tensor.raw_data
            tensor.ClearField("raw_data")
        self.assertGreater(len(blob), 10000)
        folder = pathlib.Path(self.directory) / "export"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(external.SerializeToString())
        shell = Shell(self.daemon.address("manager"), self.directory)
        self.assertIn("weights.data", shell.error("function", "deploy", "vision", folder / "model.onnx", code=2))
        (folder / "weights.data").write_bytes(blob)
        shell.run("function", "deploy", "vision", folder / "model.onnx")
        self.check("vision", inputs, expected)
        # Over HTTP no file can come along: the answer says how it can.
        answer = self.http.deploy("bare", external.SerializeToString())
        self.assertEqual(answer.code, 400)
        self.assertIn("troupe function deploy", answer.error)

    def test_weights_in_a_safetensors_file(self):
        """As onnx_ir.save_safetensors and onnx_safetensors write them: each tensor names file, offset and length; the file has a
        header of its own before them."""
        model, inputs, expected = networks()["vision_transformer_20"]
        external = onnx.load_from_string(model)
        blob, header = b"", {}
        kept = [tensor for tensor in external.graph.initializer if len(tensor.raw_data) >= 256]
        for tensor in kept:
            header[tensor.name] = {"dtype": "F32", "shape": list(tensor.dims), "data_offsets": [len(blob), len(blob) + len(tensor.raw_data)]}
            blob += tensor.raw_data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        for tensor in kept:
            begin, end = header[tensor.name]["data_offsets"]
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, entry in (("location", "model.safetensors"), ("offset", 8 + len(text) + begin), ("length", end - begin)):
                tensor.external_data.add(key=key, value=str(entry))
        folder = pathlib.Path(self.directory) / "export"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(external.SerializeToString())
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + blob)
        shell = Shell(self.daemon.address("manager"), self.directory)
        shell.run("function", "check", folder)
        shell.run("function", "deploy", "vision", folder)
        self.check("vision", inputs, expected)
        # A file whose tensors were taken away without a word of where they are.
        for tensor in external.graph.initializer:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
        (folder / "model.onnx").write_bytes(external.SerializeToString())
        said = shell.error("function", "deploy", "stripped", folder, code=2)
        self.assertIn(kept[0].name, said)
        self.assertIn("has no data", said)

    @unittest.skipUnless(COMPUTES_BF16, "this processor does not compute in BF16")
    def test_weights_in_bf16_are_half_as_large_and_answers_are_close(self):
        model, weight = dense(4)
        x = {"x": np.random.default_rng(1).standard_normal((2, 1024), dtype=np.float32)}
        exact = x["x"].astype(np.float64) @ weight.astype(np.float64)
        shell = Shell(self.daemon.address("manager"), self.directory)
        (pathlib.Path(self.directory) / "dense.onnx").write_bytes(model)
        answers, packed = {}, {}
        for precision in ("fp32", "bf16"):
            shell.run("function", "deploy", precision, pathlib.Path(self.directory) / "dense.onnx", "--precision", precision)
            shape, data = infer_binary(self.http, precision, x)["y"]
            answers[precision] = np.frombuffer(data, np.float32).reshape(shape)
            packed[precision] = shell.json("function", "show", precision)["functions"][0]["record"]["packed"][0]
        self.assertEqual(int(packed["bf16"]["weights_bytes"]) * 2, int(packed["fp32"]["weights_bytes"]))
        self.assertEqual(packed["bf16"]["target"], packed["fp32"]["target"] + "+bf16")
        self.assertIn("+bf16, 2 MiB", shell.text("function", "show", "bf16"))
        np.testing.assert_allclose(answers["fp32"], exact, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(answers["bf16"], exact, atol=0.02 * np.abs(exact).max())
        self.assertGreater(np.abs(answers["bf16"] - exact).max(), 1e-3, "it was computed in FP32")
        # The same file in FP32 and in BF16 gives two models, and the GPU holds both.
        self.assertEqual(len(shell.json("gpu", "show", "one/0")["gpus"][0]["models"]), 2)

    def test_what_is_not_computed_is_refused_by_name_before_anything_is_deployed(self):
        relu = [helper.make_node("Relu", ["x"], ["y"])]
        narrow = TensorProto(name="w", dims=[4], data_type=17, raw_data=b"abcd")
        loop = helper.make_node("Loop", ["", "c", "x"], ["y"], body=helper.make_graph(
            [helper.make_node("Identity", ["d"], ["e"]), helper.make_node("Identity", ["v"], ["w"])], "body",
            [value("i", type=TensorProto.INT64), value("d", type=TensorProto.BOOL), value("v", 1, 4)],
            [value("e", type=TensorProto.BOOL), value("w", 1, 4)]))
        on = numpy_helper.from_array(np.array(True), "c")
        cases = {
            "a newer opset": (model_of(relu, 24), 501, ["opset 24", "7 to 23"]),
            "an operator": (model_of([helper.make_node("DeformConv", ["x", "x", "x"], ["y"])], 19), 501, ["DeformConv", "opset 19"]),
            "of a later opset": (model_of([helper.make_node("Attention", ["x", "x", "x"], ["y"])], 22), 501,
                                 ["Attention", "opset 22"]),
            "of another domain": (model_of([helper.make_node("Rfft", ["x"], ["y"], domain="com.microsoft")], 21,
                                           domains=["com.microsoft"]), 501, ["com.microsoft.Rfft"]),
            "a narrow type": (model_of([helper.make_node("Mul", ["x", "w"], ["y"])], 21, weights=[narrow]), 501,
                              ["FLOAT8E4M3FN", "'w'"]),
            "a cast to one": (model_of([helper.make_node("Cast", ["x"], ["y"], to=22)], 21), 400, ["INT4"]),
            "a loop without an end": (model_of([loop], 21, weights=[on]), 400, ["Loop 'y'", "without end", "100000 trips"]),
            "training": (model_of([helper.make_node("Dropout", ["x", "", "c"], ["y"])], 22, weights=[on]), 400,
                         ["inference mode"]),
        }
        for name, (model, code, said) in cases.items():
            with self.subTest(name):
                answer = self.http.deploy("refused", model.SerializeToString())
                self.assertEqual(answer.code, code, answer.body)
                for text in said:
                    self.assertIn(text, answer.error)
        self.assertEqual(self.http.get("/v2/models/refused").code, 404)

    def test_damaged_files_cost_nothing_but_their_import(self):
        random = np.random.default_rng(23)
        models = [model for model, _, _ in networks().values()]
        self.http.deploy("double", scale(2)).good()
        codes = {}
        for i in range(60):
            damaged = bytearray(models[i % len(models)])
            for at in random.integers(0, min(len(damaged), 4096), 3):
                damaged[at] ^= 1 << int(random.integers(0, 8))
            answer = self.http.deploy(f"damaged-{i}", bytes(damaged))
            codes[answer.code] = codes.get(answer.code, 0) + 1
            self.assertIn(answer.code, (200, 400, 501), answer.body)
        self.assertGreater(sum(n for code, n in codes.items() if code != 200), 10, codes)
        self.assertEqual(self.http.infer("double", X)["y"], [2.0] * 4)


if __name__ == "__main__":
    main()
