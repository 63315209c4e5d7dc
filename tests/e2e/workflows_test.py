#!/usr/bin/python3
"""The workflows of examples/workflows, of StreamBox's kinds: conditions, for_each over what a detector finds, what stands in."""
import subprocess
import sys

import numpy as np
import onnx

from harness import E2eTest, eventually, main
from harness.client import infer_binary
from harness.networks import EXAMPLES
from harness.shell import Shell
from harness.workflows import chain

FOLDER = EXAMPLES / "workflows"
TYPES = {"FP32": np.float32, "INT64": np.int64, "BOOL": np.bool_}
FUNCTIONS = ("detector", "car-types", "plates", "faces", "face-finder", "super-resolution", "enlarge", "pictures", "translate",
             "texts", "fuse")


def relu(given, gives):
    """y = max(x, 0) for rows of four floats, with these names for x and y."""
    row = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 4]) for name in (given, gives)]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", [given], [gives])], "relu", row[:1], row[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


class ChangedFunctions(E2eTest):
    """What a workflow says of a function that is not as it was when the workflow was submitted."""

    def setUp(self):
        super().setUp()
        self.http = self.start("one", "all").wait_serving().http
        self.http.deploy("f", relu("x", "y")).good()
        self.http.call("POST", "/v2/troupe/workflows", chain("twice", ["f", "f"], width=4)).good()

    def fails(self, *says):
        refused = self.http.ask("twice", {"x": np.ones((1, 4), np.float32)})
        self.assertEqual(refused.code, 400, refused.body)
        for text in says:
            self.assertIn(text, refused.error)

    def test_a_version_with_other_tensors_warns_and_its_calls_say_why_they_fail(self):
        self.assertNotIn("message", self.http.deploy("f", relu("x", "y")).good().json)
        warning = self.http.deploy("f", relu("in", "y")).good().json["message"]
        self.assertIn("workflow 'twice' has", warning)
        self.assertIn("function 'f' has no input 'x'; its inputs are: in", warning)
        self.fails("step 'step-1'", "function 'f' version 3", "in FP32", "given were: x")
        self.assertIn("has no output 'y'", self.http.deploy("f", relu("x", "out")).good().json["message"])
        self.fails("step 'step-1'", "function 'f' version 4 gave no output 'y'", "its outputs are: out")

    def test_a_function_that_is_unloaded_is_not_waited_for(self):
        self.http.call("POST", "/v2/repository/models/f/unload").good()
        eventually(lambda: self.http.get("/v2/models/f/ready").code == 503, "the gateway knows it")
        self.fails("step 'step-1': function 'f' version 1 is unloaded", "/v2/repository/models/f/load")
        refused = self.http.call("POST", "/v2/repository/models/twice/load")
        self.assertEqual(refused.code, 400)
        self.assertIn("'twice' is a workflow", refused.error)


class Workflows(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all").wait_serving()
        self.http = self.daemon.http
        networks = self.directory / "networks"
        subprocess.run([sys.executable, "-B", str(FOLDER / "networks.py"), "--output", str(networks)], check=True,
                       stdout=subprocess.DEVNULL)
        for name in FUNCTIONS:
            self.http.deploy(name, (networks / f"{name}.onnx").read_bytes()).good()
        for name in ("traffic", "image", "social"):
            self.http.call("POST", "/v2/troupe/workflows", (FOLDER / f"{name}.yaml").read_text()).good()
        self.random = np.random.default_rng(5)

    def picture(self):
        return self.random.random((1, 3, 64, 64), dtype=np.float32)

    def infer(self, name, inputs):
        answers = infer_binary(self.http, name, inputs)
        outputs = self.http.get(f"/v2/models/{name}").good().json["outputs"]
        types = {output["name"]: TYPES[output["datatype"]] for output in outputs}
        return {output: np.frombuffer(data, types[output]).reshape(shape) for output, (shape, data) in answers.items()}

    def ends(self, workflow):
        """How the steps of the newest run ended: their names, by kind."""
        run = self.http.get(f"/v2/troupe/runs?workflow={workflow}").good().json[-1]
        self.assertEqual(run["state"], "RUN_SUCCEEDED")
        ends = {}
        for step in run["steps"]:
            ends.setdefault(step.get("end", "STEP_COMMITTED"), []).append(step["step"])
        return {end: sorted(steps) for end, steps in ends.items()}

    def test_traffic_calls_once_for_each_object_that_is_found(self):
        counts = set()
        # Noise has both kinds of objects for this detector; an even picture has one kind, by its brightness.
        for image in (self.picture(), np.zeros((1, 3, 64, 64), np.float32), np.ones((1, 3, 64, 64), np.float32)):
            found = self.infer("detector", {"image": image})
            answer = self.infer("traffic", {"image": image})
            for output, function, crops in (("types", "car-types", "cars"), ("plates", "plates", "cars"),
                                            ("faces", "faces", "faces")):
                self.assertEqual(len(answer[output]), len(found[crops]), output)
                for i, scores in enumerate(answer[output]):
                    alone = self.infer(function, {"image": found[crops][i:i + 1]})["scores"][0]
                    np.testing.assert_allclose(scores, alone, rtol=1e-4, atol=1e-6, err_msg=f"{output} {i}")
            counts.add((len(found["cars"]), len(found["faces"])))
        self.assertTrue(any(cars > 1 and faces > 1 for cars, faces in counts), counts)
        self.assertTrue(any(cars == 0 for cars, _ in counts) and any(faces == 0 for _, faces in counts), counts)
        self.assertEqual(self.ends("traffic"), {"STEP_COMMITTED": ["detect", "faces", "plates", "types"]})

    def test_traffic_of_a_picture_without_objects_answers_empty_tensors(self):
        blank = np.full((1, 3, 64, 64), -1e3, np.float32)
        found = self.infer("detector", {"image": blank})
        answer = self.infer("traffic", {"image": blank})
        self.assertEqual([len(found["cars"]), len(found["faces"])], [0, 0], "there is nothing in this picture")
        self.assertEqual({name: tensor.shape for name, tensor in answer.items()},
                         {"types": (0, 12), "plates": (0, 36), "faces": (0, 8)})

    def test_image_is_enlarged_if_it_has_a_face(self):
        seen = set()
        for image in (self.picture(), np.zeros((1, 3, 64, 64), np.float32)):
            face = self.infer("face-finder", {"image": image})
            answer = self.infer("image", {"image": image})
            found = bool(face["found"][0])
            seen.add(found)
            self.assertEqual("large" in answer, found)
            np.testing.assert_allclose(answer["person"], face["scores"], rtol=1e-4, atol=1e-6)
            if found:
                expected = self.infer("super-resolution", {"image": image})["large"]
                np.testing.assert_allclose(answer["large"], expected, rtol=1e-4, atol=1e-5)
                self.assertEqual(self.ends("image"), {"STEP_COMMITTED": ["enhance", "face"], "STEP_SKIPPED": ["enlarge"]})
            else:
                self.assertEqual(self.ends("image"), {"STEP_COMMITTED": ["face"], "STEP_SKIPPED": ["enhance", "enlarge"]})
        self.assertEqual(seen, {True, False})

    def test_a_plain_enlargement_stands_in_for_a_network_that_is_gone(self):
        image = self.picture()
        self.assertTrue(self.infer("face-finder", {"image": image})["found"][0])
        self.http.call("DELETE", "/v2/troupe/functions/super-resolution").good()
        answer = self.infer("image", {"image": image})
        np.testing.assert_array_equal(answer["large"], image.repeat(2, axis=2).repeat(2, axis=3))
        self.assertEqual(self.ends("image"), {"STEP_COMMITTED": ["enlarge", "face"], "STEP_FAILED": ["enhance"]})

    def test_social_looks_at_the_picture_of_a_post_that_has_one(self):
        words = self.random.integers(0, 500, (1, 16))
        picture = self.picture()
        translated = self.infer("translate", {"words": words})["translated"]
        text = self.infer("texts", {"words": translated})["scores"]
        look = self.infer("pictures", {"image": picture})["scores"]
        fused = self.infer("fuse", {"picture": look, "text": text})["scores"]
        for has_picture, expected in ((True, fused), (False, text)):
            answer = self.infer("social", {"words": words, "picture": picture, "has_picture": np.array([has_picture])})
            np.testing.assert_array_equal(answer["translated"], translated)
            np.testing.assert_allclose(answer["scores"], expected, rtol=1e-4, atol=1e-6)
        self.assertEqual(self.ends("social"), {"STEP_COMMITTED": ["text", "translate"], "STEP_SKIPPED": ["fuse", "look"]})

    def test_the_graph_shows_the_states_of_a_run(self):
        self.infer("image", {"image": self.picture()})
        run = self.http.get("/v2/troupe/runs?workflow=image").good().json[-1]["start"]["run"]
        drawing = self.directory / "image.svg"
        shell = Shell(self.daemon.address("manager"), self.directory)
        shown = shell.text("workflow", "graph", "image", "--run", run, "--svg", drawing)
        self.assertIn("skipped", shown)
        self.assertTrue(drawing.read_text().startswith("<svg "))


if __name__ == "__main__":
    main()
