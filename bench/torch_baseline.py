#!/usr/bin/python3
"""The baseline of bench/engine.py: PyTorch runs an ONNX graph as often as standard input says.

usage: torch_baseline.py MODEL.onnx THREADS

Same protocol as engine_bench: one line of facts, then one median in milliseconds for each count read.
"""
import statistics
import sys
import time

import numpy as np
import onnx
import onnx.numpy_helper
import torch
import torch.nn.functional as F

TYPES = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.INT64: torch.int64}


def same_pads(pads):
    half = len(pads) // 2
    assert pads[:half] == pads[half:], "asymmetric padding"
    return pads[:half]


def pool(function, x, attributes, **more):
    return function(x, attributes["kernel_shape"], attributes.get("strides"), same_pads(attributes.get("pads", [0, 0, 0, 0])),
                    ceil_mode=bool(attributes.get("ceil_mode", 0)), **more)


def gemm(a, x, w, b):
    return F.linear(x, w if a.get("transB") else w.t(), b)


OPERATORS = {
    "Conv": lambda a, x, w, b=None: F.conv2d(x, w, b, a.get("strides", 1), same_pads(a.get("pads", [0, 0, 0, 0])),
                                             a.get("dilations", 1), a.get("group", 1)),
    "BatchNormalization": lambda a, x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=a.get("epsilon", 1e-5)),
    "Relu": lambda a, x: F.relu(x),
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a["alpha"], a["beta"], a["bias"]),
    "MaxPool": lambda a, x: pool(F.max_pool2d, x, a),
    "AveragePool": lambda a, x: pool(F.avg_pool2d, x, a, count_include_pad=bool(a.get("count_include_pad", 0))),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "Flatten": lambda a, x: torch.flatten(x, a.get("axis", 1)),
    "Gemm": gemm,
    "MatMul": lambda a, x, y: torch.matmul(x, y),
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Sum": lambda a, *xs: sum(xs[1:], xs[0]),
    "Erf": lambda a, x: torch.erf(x),
    "Tanh": lambda a, x: torch.tanh(x),
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", 1)),
    "LayerNormalization": lambda a, x, s, b: F.layer_norm(x, s.shape, s, b, a.get("epsilon", 1e-5)),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Reshape": lambda a, x, s: x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(s.tolist())]),
    "Unsqueeze": lambda a, x, axes: x[:, None, None, :] if axes.tolist() == [1, 2] else x.unsqueeze(int(axes[0])),
    "Gather": lambda a, x, i: F.embedding(i, x) if a.get("axis", 0) == 0 else x.select(a["axis"], int(i)),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Cast": lambda a, x: x.to(TYPES[a["to"]]),
    "Identity": lambda a, x: x,
    "Dropout": lambda a, x: x,
}


class Network(torch.nn.Module):
    """The graph, one PyTorch call per node; weights are parameters, so that freezing can fold and reorder them."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph
        self.names = {}
        for tensor in graph.initializer:
            self.keep(tensor.name, onnx.numpy_helper.to_array(tensor))
        self.nodes = []
        for node in graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            if node.op_type == "ConstantOfShape":
                value = onnx.numpy_helper.to_array(attributes["value"])[0]
                self.keep(node.output[0], np.full(self.weight(node.input[0]).tolist(), value))
            else:
                self.nodes.append((node.op_type, list(node.input), node.output[0], attributes))
        self.inputs = [i for i in graph.input if i.name not in self.names]

    def keep(self, name, array):
        self.names[name] = f"value_{len(self.names)}"
        self.register_buffer(self.names[name], torch.from_numpy(np.array(array)))

    def weight(self, name):
        return getattr(self, self.names[name])

    def forward(self, *inputs):
        values = dict(zip((i.name for i in self.inputs), inputs))
        for op, names, output, attributes in self.nodes:
            arguments = [values[n] if n in values else self.weight(n) for n in names if n]
            values[output] = OPERATORS[op](attributes, *arguments)
        return values[self.graph.output[0].name]


def make_input(info):
    shape = [max(d.dim_value, 1) for d in info.type.tensor_type.shape.dim]
    if info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return torch.ones(shape, dtype=torch.int64)
    count = int(np.prod(shape))
    return torch.from_numpy((np.arange(count, dtype=np.float64) / count).astype(np.float32).reshape(shape))


def prepare(network, inputs):
    traced = torch.jit.trace(network, inputs, check_trace=False)
    try:
        return torch.jit.optimize_for_inference(traced), "optimised"
    except RuntimeError:
        return torch.jit.freeze(traced), "frozen"


def main():
    torch.set_num_threads(int(sys.argv[2]))
    network = Network(onnx.load(sys.argv[1]).graph).eval()
    inputs = tuple(make_input(info) for info in network.inputs)
    with torch.no_grad():
        network, how = prepare(network, inputs)
        for _ in range(3):
            output = network(*inputs)
        print(f"ready output={output.abs().double().sum().item():.6g} {how}", flush=True)
        for line in sys.stdin:
            times = []
            for _ in range(max(int(line), 1)):
                begin = time.perf_counter()
                network(*inputs)
                times.append((time.perf_counter() - begin) * 1e3)
            print(statistics.median(times), flush=True)


if __name__ == "__main__":
    main()
