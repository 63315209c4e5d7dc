"""The functions of functions.py: 300 ONNX files of distinct digests in three classes, each a few kB of constant weights.

    small    180: 60 SqueezeNets (5 MB of weights) and 120 dense networks of 1 to 8 MB
    medium    90: 45 DenseNet-121 (32 MB) and 45 Inception v1 (28 MB)
    large     30: ResNet-50 (102 MB)

Networks come from the models directory beside the project (light_NAME). One weight of each copy differs a little from the
others', so that nothing is shared: neither on disk nor in the host region nor on a GPU.
"""
import hashlib
import json
import math
import os
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from report import ROOT

COUNTS = {"squeezenet": 60, "dense": 120, "densenet121": 45, "inception_v1": 45, "resnet50": 30}
CLASSES = {"squeezenet": "small", "dense": "small", "densenet121": "medium", "inception_v1": "medium",
           "resnet50": "large"}
# Times of one run on a V100 in Torpor's table 4, for these networks or the most similar ones.
RUN_MS = {"squeezenet": 5, "dense": 1, "densenet121": 25, "inception_v1": 14, "resnet50": 9}


class Function:
    def __init__(self, name, network, path, inputs):
        self.name, self.network, self.path, self.inputs = name, network, path, inputs
        self.kind, self.run_ms = CLASSES[network], RUN_MS[network]
        self.data = path.read_bytes()
        self.digest = hashlib.sha256(self.data).hexdigest()


def copy_of(model, number):
    """The same network with another last constant."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constant = [node for node in copy.graph.node if node.op_type == "ConstantOfShape"][-1]
    value = constant.attribute[0].t
    tensor = numpy_helper.from_array(np.asarray([0.02 + number * 1e-6], np.float32))
    value.CopyFrom(tensor)
    return copy


def add_arguments(parser):
    """The options of a benchmark of copies of one network."""
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--shared", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TROUPE_SHARED_DIR", ROOT.parent / "shared")))
    parser.add_argument("--network", default="resnet50", choices=["resnet50", "densenet121", "inception_v1", "squeezenet"])


def copies_of(network, count, models, directory):
    """`count` functions of one network, each with a digest of its own; None when `models` does not have the network."""
    source = models / f"light_{network}.onnx"
    if not source.exists():
        return None
    base, functions = onnx.load(str(source)), []
    for number in range(count):
        path = directory / f"{network}-{number}.onnx"
        model = copy_of(base, number)
        path.write_bytes(model.SerializeToString())
        functions.append(Function(f"{network}-{number}", network, path, input_shapes(model)))
    return functions


def dense(megabytes, number):
    """Three matrices of constant weights, the middle one of about so many megabytes."""
    width = int(math.sqrt(megabytes * 1e6 / 4)) // 16 * 16
    shapes = [(64, width), (width, width), (width, 10)]
    nodes, sizes, x = [], [], "x"
    for i, shape in enumerate(shapes):
        sizes.append(numpy_helper.from_array(np.asarray(shape, np.int64), f"shape_{i}"))
        value = helper.make_tensor("", TensorProto.FLOAT, [1], [0.001 + number * 1e-6])
        nodes.append(helper.make_node("ConstantOfShape", [f"shape_{i}"], [f"w_{i}"], value=value))
        nodes.append(helper.make_node("MatMul", [x, f"w_{i}"], [f"y_{i}"]))
        x = f"y_{i}"
    nodes.append(helper.make_node("Softmax", [x], ["y"], axis=-1))
    graph = helper.make_graph(nodes, "dense", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])], sizes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


def input_shapes(model):
    """{input: shape} of a request."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
            for value in model.graph.input if value.name not in constants}


def make(directory, shared, scale=1.0):
    """Writes missing files; returns the functions, `scale` of each network's count. None without the shared models."""
    directory.mkdir(parents=True, exist_ok=True)
    functions = []
    for network, count in COUNTS.items():
        source = shared / "models" / f"light_{network}.onnx"
        if network != "dense" and not source.exists():
            return None
        base = None if network == "dense" else onnx.load(str(source))
        for number in range(max(1, round(count * scale))):
            path = directory / f"{network}-{number}.onnx"
            model = dense(1 + 7 * number / COUNTS["dense"], number) if base is None else copy_of(base, number)
            if not path.exists():
                path.write_bytes(model.SerializeToString())
            functions.append(Function(f"{network}-{number}", network, path, input_shapes(model)))
    return functions


def body_of(function):
    """(headers, body) of an inference request with zeros."""
    tensors = [{"name": name, "datatype": "FP32", "shape": shape,
                "parameters": {"binary_data_size": 4 * math.prod(shape)}} for name, shape in function.inputs.items()]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    return ({"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"},
            head + b"".join(bytes(4 * math.prod(shape)) for shape in function.inputs.values()))
