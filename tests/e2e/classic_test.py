#!/usr/bin/python3
"""Classic models (ai.onnx.ml), as scikit-learn, LightGBM and XGBoost are exported: deployed, run and refused over HTTP."""
import numpy as np
import onnx

from harness import main
from harness.served_models import ServedModels, archived


def exports():
    """By name: the model's bytes, the inputs by name, the expected outputs in the order of the model's."""
    return {name[len("export_"):]: case for name, case in archived("classic").items() if name.startswith("export_")}


class Classic(ServedModels):
    def test_exported_models_give_what_onnxruntime_gives(self):
        tried = exports()
        self.assertGreaterEqual(len(tried), 11)
        for name, (model, inputs, expected) in tried.items():
            with self.subTest(name):
                self.http.deploy(name, model).good()
                self.check(name, inputs, expected)
                # One row alone has the scores that it had among others.
                self.check(name, {key: value[:1] for key, value in inputs.items()},
                           {key: value[:1] for key, value in expected.items()})

    def test_a_gradient_boosted_classifier_over_json(self):
        model, inputs, expected = exports()["sklearn_gradient_boosting"]
        self.http.deploy("boosted", model).good()
        told = self.http.get("/v2/models/boosted").good().json
        self.assertEqual([(o["name"], o["datatype"], o["shape"]) for o in told["outputs"]],
                         [("output_label", "INT64", [-1]), ("output_probability", "FP32", [-1, 2]),
                          ("output_probability.keys", "INT64", [-1, 2])])
        given = self.http.infer("boosted", inputs)
        self.assertEqual(given["output_label"], expected["output_label"].tolist())
        np.testing.assert_allclose(given["output_probability"], expected["output_probability"].ravel(), rtol=1e-4, atol=1e-5)
        self.assertEqual(given["output_probability.keys"], [0, 1] * len(expected["output_label"]))

    def test_labels_may_be_texts(self):
        model, inputs, expected = exports()["sklearn_random_forest_texts"]
        self.http.deploy("forest", model).good()
        told = self.http.get("/v2/models/forest").good().json
        self.assertEqual([(o["name"], o["datatype"]) for o in told["outputs"]],
                         [("output_label", "BYTES"), ("output_probability", "FP32"), ("output_probability.keys", "BYTES")])
        self.assertEqual(self.http.infer("forest", inputs)["output_label"], expected["output_label"].tolist())

    def test_what_cannot_be_is_refused_by_name_before_anything_is_deployed(self):
        sound = exports()["lightgbm_2"][0]

        def spoiled(change):
            model = onnx.load_from_string(sound)
            change(model, {a.name: a for a in model.graph.node[0].attribute})
            return model.SerializeToString()

        def set_child(model, attributes):
            attributes["nodes_truenodeids"].ints[0] = 0

        def drop_value(model, attributes):
            attributes["nodes_values"].floats.pop()

        def leave_tree(model, attributes):
            attributes["nodes_falsenodeids"].ints[0] = 2 ** 31

        def orphan_weight(model, attributes):
            attributes["class_nodeids"].ints[0] = 99999

        def far_class(model, attributes):
            attributes["class_ids"].ints[0] = 2

        def version(model, attributes):
            model.opset_import[1].version = 6

        def words(model, attributes):
            node = model.graph.node.add(op_type="LabelEncoder", name="words", domain="ai.onnx.ml", input=["label"],
                                        output=["word"])
            node.attribute.extend([onnx.helper.make_attribute("keys_int64s", [0, 1, 2]),
                                   onnx.helper.make_attribute("values_strings", ["no", "yes"])])
            model.graph.output.add(name="word").type.tensor_type.elem_type = onnx.TensorProto.STRING

        cases = {"a cycle": (set_child, 400, ["TreeEnsembleClassifier"]),
                 "a list of another length": (drop_value, 400, ["'nodes_values' has"]),
                 "a child outside": (leave_tree, 400, ["leads to node 2147483648"]),
                 "a weight of no leaf": (orphan_weight, 400, ["99999", "not there"]),
                 "a weight of no class": (far_class, 400, ["target 2 of 2"]),
                 "a later version": (version, 501, ["version 6 of ai.onnx.ml"]),
                 "a map of other lengths": (words, 400, ["LabelEncoder 'words'", "3 keys and 2 values"])}
        for name, (change, code, said) in cases.items():
            with self.subTest(name):
                answer = self.http.deploy("refused", spoiled(change))
                self.assertEqual(answer.code, code, answer.body)
                for text in said:
                    self.assertIn(text, answer.error)
        self.assertEqual(self.http.get("/v2/models/refused").code, 404)


if __name__ == "__main__":
    main()
