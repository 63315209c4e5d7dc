#!/usr/bin/python3
"""Models of texts (BYTES), over HTTP: as JSON, in the binary extension and from the shell; what is refused."""
import json
import struct

import numpy as np
from onnx import TensorProto, helper

from harness import E2eTest, main
from harness.client import infer_binary, texts_of
from harness.shell import Shell


def model(nodes, inputs, outputs, constants=()):
    def declared(values):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]
    graph = helper.make_graph(nodes, "texts", declared(inputs), declared(outputs), constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 2)])
    made.ir_version = 8
    return made.SerializeToString()


def simple_string():
    """Triton's example: two rows of 16 texts that are numbers; their sums and differences."""
    nodes = []
    for i in range(2):
        nodes.append(helper.make_node("Cast", [f"INPUT{i}"], [f"NUMBER{i}"], to=TensorProto.INT32))
    for i, operator in enumerate(("Add", "Sub")):
        nodes.append(helper.make_node(operator, ["NUMBER0", "NUMBER1"], [f"RESULT{i}"]))
        nodes.append(helper.make_node("Cast", [f"RESULT{i}"], [f"OUTPUT{i}"], to=TensorProto.STRING))
    row = (TensorProto.STRING, [1, 16])
    return model(nodes, {"INPUT0": row, "INPUT1": row}, {"OUTPUT0": row, "OUTPUT1": row})


def texts(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


ROW = texts(*(str(i) for i in range(16))).reshape(1, 16)
ONES = texts(*["1"] * 16).reshape(1, 16)
SUMS, DIFFERENCES = [str(i + 1) for i in range(16)], [str(i - 1) for i in range(16)]


class Texts(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("all", "all")
        self.daemon.wait_serving()
        self.http = self.daemon.http

    def test_tritons_example_over_json_and_binary(self):
        self.http.deploy("simple_string", simple_string()).good()
        told = self.http.get("/v2/models/simple_string").good().json
        self.assertEqual([(t["name"], t["datatype"], t["shape"]) for t in told["inputs"] + told["outputs"]],
                         [(name, "BYTES", [1, 16]) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")])
        given = self.http.infer("simple_string", {"INPUT0": ROW, "INPUT1": ONES})
        self.assertEqual(given, {"OUTPUT0": SUMS, "OUTPUT1": DIFFERENCES})
        binary = infer_binary(self.http, "simple_string", {"INPUT0": ROW, "INPUT1": ONES})
        self.assertEqual({name: (shape, texts_of(data)) for name, (shape, data) in binary.items()},
                         {"OUTPUT0": ([1, 16], SUMS), "OUTPUT1": ([1, 16], DIFFERENCES)})
        # Longer texts, for which the worker makes a plan with more room.
        wide = texts(*(str(i).rjust(900) for i in range(16))).reshape(1, 16)
        self.assertEqual(self.http.infer("simple_string", {"INPUT0": wide, "INPUT1": ONES})["OUTPUT0"], SUMS)

    def test_texts_that_are_no_numbers_are_refused_and_the_next_request_is_served(self):
        self.http.deploy("simple_string", simple_string()).good()
        bad = ROW.copy()
        bad[0, 3] = "three"
        answer = self.http.ask("simple_string", {"INPUT0": bad, "INPUT1": ONES})
        self.assertEqual(answer.code, 400, answer.body)
        self.assertIn("text 3 is 'three', which is not a number", answer.error)
        self.assertEqual(self.http.infer("simple_string", {"INPUT0": ROW, "INPUT1": ONES})["OUTPUT0"], SUMS)

    def test_lengths_that_lie_and_texts_of_a_gigabyte_are_refused_by_name(self):
        self.http.deploy("simple_string", simple_string()).good()

        def ask(claimed, data):
            tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 16], "parameters": {"binary_data_size": claimed}}
            ones = {"name": "INPUT1", "datatype": "BYTES", "shape": [1, 16], "data": ONES.ravel().tolist()}
            head = json.dumps({"inputs": [tensor, ones]}).encode()
            return self.http.call("POST", "/v2/models/simple_string/infer", head + data,
                                  {"Inference-Header-Content-Length": str(len(head))})

        lie = struct.pack("<I", 1 << 30) + b"1" * 60
        answer = ask(len(lie), lie)
        self.assertEqual(answer.code, 400, answer.body)
        self.assertIn("BYTES element 0 says it has 1073741824 bytes, but only 60 are left", answer.error)
        answer = ask(1 << 30, b"")
        self.assertEqual(answer.code, 400, answer.body)
        large = struct.pack("<I", 17 << 20) + b" " * (17 << 20) + (struct.pack("<I", 1) + b"1") * 15
        answer = ask(len(large), large)
        self.assertEqual(answer.code, 400, answer.body)
        self.assertIn("16 MiB", answer.error)
        self.assertEqual(self.http.infer("simple_string", {"INPUT0": ROW, "INPUT1": ONES})["OUTPUT1"], DIFFERENCES)

    def test_labels_of_texts_and_words_of_a_constant(self):
        encode = helper.make_node("LabelEncoder", ["word"], ["id"], domain="ai.onnx.ml", keys_strings=["no", "yes"],
                                  values_int64s=[0, 1], default_int64=2)
        names = helper.make_tensor("names", TensorProto.STRING, [3], [text.encode() for text in ("non", "oui", "\u00e7a")])
        choose = helper.make_node("Gather", ["names", "id"], ["name"])
        file = model([encode, choose], {"word": (TensorProto.STRING, [None])},
                     {"id": (TensorProto.INT64, [None]), "name": (TensorProto.STRING, [None])}, [names])
        self.http.deploy("words", file).good()
        given = self.http.infer("words", {"word": texts("yes", "maybe", "no")})
        self.assertEqual(given, {"id": [1, 2, 0], "name": ["oui", "\u00e7a", "non"]})
        shell = Shell(self.daemon.address("manager"), self.directory / "home")
        word = self.directory / "word.json"
        word.write_text('["yes"]')
        answered = shell.json("infer", "words", "--input", f"word={word}")
        self.assertEqual([output["data"] for output in answered["outputs"]], [[1], ["oui"]])


if __name__ == "__main__":
    main()
