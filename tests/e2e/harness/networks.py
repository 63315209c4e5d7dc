"""Networks of known results, made here; the digits and the ensemble, read from examples/."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def serialize(nodes, inputs, outputs, weights=(), name="test"):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="troupe-tests")
    model.ir_version = 8
    return model.SerializeToString()


def value(name, *shape, type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, list(shape))


def scale(factor, width=4):
    """y = factor * x for [batch, width]."""
    return serialize([helper.make_node("Mul", ["x", "factor"], ["y"])], [value("x", "batch", width)],
                     [value("y", "batch", width)], [numpy_helper.from_array(np.float32(factor), "factor")])


def dense(mebibytes, seed=0):
    """y = x W with that many MiB of weights; y is W's first row for x = (1, 0, 0, ...)."""
    rows = mebibytes * 256
    weight = np.random.default_rng(seed).standard_normal((rows, 1024), dtype=np.float32)
    return serialize([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", "batch", rows)],
                     [value("y", "batch", 1024)], [numpy_helper.from_array(weight, "w")]), weight


def rolls(layers, shift):
    """y = x [batch, 1024] rolled by `shift` in each of the layers, which have 4 MiB of weights each."""
    names = ["x", *(f"t{i}" for i in range(1, layers)), "y"]
    weight = np.roll(np.eye(1024, dtype=np.float32), shift, axis=1)
    return serialize([helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)],
                     [value("x", "batch", 1024)], [value("y", "batch", 1024)],
                     [numpy_helper.from_array(weight + np.float32(0), f"w{i}") for i in range(layers)])


def accumulate(mebibytes=1):
    """The state s [1, 1024] becomes t = s + x W, and y = 2 t; the first row of W is 1, 2, 3 ... for x = (1, 0, 0, ...)."""
    rows = mebibytes * 256
    weight = np.zeros((rows, 1024), np.float32)
    weight[0] = np.arange(1, 1025)
    return serialize([helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["s", "z"], ["t"]),
                      helper.make_node("Mul", ["t", "two"], ["y"])],
                     [value("x", 1, rows), value("s", 1, 1024)], [value("y", 1, 1024), value("t", 1, 1024)],
                     [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.float32(2), "two")])


def tally():
    """The state s [1, 1] becomes t = s + x, and y = 2 t: for x = 1, y is twice the number of runs."""
    return serialize([helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Mul", ["t", "two"], ["y"])],
                     [value("x", 1, 1), value("s", 1, 1)], [value("y", 1, 1), value("t", 1, 1)],
                     [numpy_helper.from_array(np.float32(2), "two")])


def digits():
    """(ONNX bytes, images [360, 1, 8, 8], labels [360])."""
    folder = EXAMPLES / "digits"
    images = np.load(folder / "heldout_images.npy").astype(np.float32).reshape(-1, 1, 8, 8) / 16
    return (folder / "digits.onnx").read_bytes(), images, np.load(folder / "heldout_labels.npy")


ENSEMBLE = {"digits-cnn": "cnn.onnx", "digits-mlp": "mlp.onnx", "digits-wide": "wide.onnx", "average": "average.onnx"}


def ensemble():
    """({function: ONNX bytes}, YAML of the workflow)."""
    folder = EXAMPLES / "ensemble"
    return ({name: (folder / file).read_bytes() for name, file in ENSEMBLE.items()},
            (folder / "ensemble.yaml").read_bytes())
