#!/usr/bin/python3
"""Makes ONNX networks with seeded random weights, for tests, the demo and benchmarks.

usage: make_models.py --output DIR [--seed N] [--variants K] [--batch B] [--size PIXELS] MODEL...

MODEL is one of resnet8, resnet18, resnet50, resnet152, bert-base, bert-large, bert-tiny, vit-large, vit-tiny, detector, mlp,
noop. `--variants K` writes K files per model, with seeds N to N+K-1: networks of one shape whose digests differ. The batch is dynamic unless `--batch` fixes it.
Weights are scaled (He) so that activations stay finite. Needs Debian's python3-onnx and python3-numpy.
"""
import argparse
import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Net:
    """A graph under construction. Methods add a node and return the name of its output."""

    def __init__(self, name, seed, batch):
        self.name, self.seed, self.batch = f"{name}-{seed}", seed, batch
        self.random = np.random.default_rng([seed, *name.encode()])
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []

    def op(self, kind, *inputs, outputs=1, name=None, **attributes):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values, dtype=np.float32):
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def he(self, *shape, fan_in, gain=2.0):
        values = self.random.standard_normal(shape, dtype=np.float32)
        return self.constant(values * np.float32(math.sqrt(gain / fan_in)))

    def input(self, name, dtype, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, [self.batch, *shape]))
        return name

    def output(self, name, dtype, shape):
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def conv(self, x, c_in, c_out, kernel, stride=1, bias=False, pad=None):
        weights = [self.he(c_out, c_in, kernel, kernel, fan_in=c_in * kernel * kernel)]
        if bias:
            weights.append(self.constant(self.random.normal(0, 0.05, c_out)))
        pad = kernel // 2 if pad is None else pad
        return self.op("Conv", x, *weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def batch_norm(self, x, channels, gain=1.0):
        scale = self.random.uniform(0.9, 1.1, channels) * gain
        rest = self.random.normal(0, 0.05, channels), self.random.normal(0, 0.05, channels)
        variance = self.random.uniform(0.9, 1.1, channels)
        return self.op("BatchNormalization", x, self.constant(scale), *map(self.constant, rest), self.constant(variance))

    def linear(self, x, n_in, n_out):
        weight = self.he(n_in, n_out, fan_in=n_in, gain=1.0)
        return self.op("Add", self.op("MatMul", x, weight), self.constant(self.random.normal(0, 0.02, n_out)))

    def layer_norm(self, x, n):
        scale, bias = self.random.uniform(0.9, 1.1, n), self.random.normal(0, 0.02, n)
        return self.op("LayerNormalization", x, self.constant(scale), self.constant(bias), axis=-1, epsilon=1e-12)

    def save(self, path):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="troupe")
        model.ir_version = 8
        onnx.checker.check_model(model)
        onnx.save(model, path)


def resnet(net, depths, bottleneck, size):
    expansion = 4 if bottleneck else 1
    x = net.input("data", FLOAT, 3, size, size)
    x = net.op("Relu", net.batch_norm(net.conv(x, 3, 64, 7, 2), 64))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            branch = x
            if bottleneck:
                plan = [(channels, width, 1, 1), (width, width, 3, stride), (width, width * 4, 1, 1)]
            else:
                plan = [(channels, width, 3, stride), (width, width, 3, 1)]
            for i, (c_in, c_out, kernel, step) in enumerate(plan):
                last = i == len(plan) - 1
                branch = net.batch_norm(net.conv(branch, c_in, c_out, kernel, step), c_out, 0.2 if last else 1.0)
                if not last:
                    branch = net.op("Relu", branch)
            if stride != 1 or channels != width * expansion:
                x = net.batch_norm(net.conv(x, channels, width * expansion, 1, stride), width * expansion)
            channels = width * expansion
            x = net.op("Relu", net.op("Add", branch, x))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight, bias = net.he(1000, channels, fan_in=channels, gain=1.0), net.constant(net.random.normal(0, 0.02, 1000))
    net.op("Gemm", x, weight, bias, transB=1, name="logits")
    net.output("logits", FLOAT, [net.batch, 1000])


def attention(net, x, mask, hidden, heads):
    width = hidden // heads

    def split(value, order):
        return net.op("Transpose", net.op("Reshape", value, net.ints(0, 0, heads, width)), perm=order)

    query = split(net.linear(x, hidden, hidden), [0, 2, 1, 3])
    key = split(net.linear(x, hidden, hidden), [0, 2, 3, 1])
    value = split(net.linear(x, hidden, hidden), [0, 2, 1, 3])
    scores = net.op("Div", net.op("MatMul", query, key), net.constant(math.sqrt(width)))
    weights = net.op("Softmax", scores if mask is None else net.op("Add", scores, mask), axis=-1)
    merged = net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return net.linear(net.op("Reshape", merged, net.ints(0, 0, hidden)), hidden, hidden)


def gelu(net, x):
    erf = net.op("Erf", net.op("Div", x, net.constant(math.sqrt(2))))
    return net.op("Mul", net.op("Mul", x, net.op("Add", erf, net.constant(1.0))), net.constant(0.5))


def bert(net, layers, hidden, heads, vocabulary, sequence):
    ids = net.input("input_ids", INT64, sequence)
    mask = net.input("attention_mask", INT64, sequence)
    table = net.constant(net.random.standard_normal((vocabulary, hidden), dtype=np.float32) * np.float32(0.5))
    positions = net.constant(net.random.normal(0, 0.1, (1, sequence, hidden)))
    x = net.layer_norm(net.op("Add", net.op("Gather", table, ids, axis=0), positions), hidden)
    wide = net.op("Cast", net.op("Unsqueeze", mask, net.ints(1, 2)), to=FLOAT)
    mask = net.op("Mul", net.op("Sub", net.constant(1.0), wide), net.constant(-10000.0))
    for _ in range(layers):
        x = net.layer_norm(net.op("Add", attention(net, x, mask, hidden, heads), x), hidden)
        inner = gelu(net, net.linear(x, hidden, hidden * 4))
        x = net.layer_norm(net.op("Add", net.linear(inner, hidden * 4, hidden), x), hidden)
    net.op("Identity", x, name="last_hidden_state")
    net.output("last_hidden_state", FLOAT, [net.batch, sequence, hidden])
    first = net.op("Gather", x, net.constant(0, np.int64), axis=1)
    net.op("Tanh", net.linear(first, hidden, hidden), name="pooled")
    net.output("pooled", FLOAT, [net.batch, hidden])


def vit(net, layers, hidden, heads, size, patch=16):
    """A vision transformer whose patches are averaged at its end, instead of a token of their class."""
    patches = (size // patch) ** 2
    x = net.conv(net.input("image", FLOAT, 3, size, size), 3, hidden, patch, patch, bias=True, pad=0)
    x = net.op("Transpose", net.op("Reshape", x, net.ints(0, hidden, patches)), perm=[0, 2, 1])
    x = net.op("Add", x, net.constant(net.random.normal(0, 0.1, (1, patches, hidden))))
    for _ in range(layers):
        x = net.op("Add", attention(net, net.layer_norm(x, hidden), None, hidden, heads), x)
        inner = gelu(net, net.linear(net.layer_norm(x, hidden), hidden, hidden * 4))
        x = net.op("Add", net.linear(inner, hidden * 4, hidden), x)
    x = net.op("ReduceMean", net.layer_norm(x, hidden), axes=[1], keepdims=0)
    net.op("Identity", net.linear(x, hidden, 1000), name="logits")
    net.output("logits", FLOAT, [net.batch, 1000])


def detector(net, size):
    """A one-stage detector for one image: two pyramid levels, boxes by Exp and Sigmoid, NonMaxSuppression at its end."""
    classes, limit = 8, 20
    x = net.input("image", FLOAT, 3, size, size)
    channels = 3
    levels = []
    for width in (16, 32, 64, 96):
        x = net.op("LeakyRelu", net.batch_norm(net.conv(x, channels, width, 3, 2), width), alpha=0.1)
        channels = width
        levels.append(x)
    up = net.op("Resize", x, "", net.constant([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")
    fused = net.op("Concat", up, levels[-2], axis=1)
    boxes, scores = [], []
    for feature, c_in, cells in ((fused, 160, size // 8), (x, 96, size // 16)):
        head = net.op("Relu", net.conv(feature, c_in, 64, 3, bias=True))
        flat = net.op("Reshape", net.conv(head, 64, 4 + classes, 1, bias=True), net.ints(1, 4 + classes, -1))
        flat = net.op("Transpose", flat, perm=[0, 2, 1])
        centre, extent, score = net.op("Split", flat, net.ints(2, 2, classes), outputs=3, axis=2)
        ys, xs = np.meshgrid(np.arange(cells), np.arange(cells), indexing="ij")
        grid = net.constant(np.stack([ys, xs], -1).reshape(1, -1, 2))
        centre = net.op("Div", net.op("Add", net.op("Sigmoid", centre), grid), net.constant(cells))
        half = net.op("Mul", net.op("Exp", net.op("Clip", extent, net.constant(-2.0), net.constant(2.0))),
                      net.constant(1.0 / cells))
        boxes.append(net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2))
        scores.append(net.op("Sigmoid", score))
    net.op("Concat", *boxes, axis=1, name="boxes")
    net.op("Transpose", net.op("Concat", *scores, axis=1), perm=[0, 2, 1], name="scores")
    net.op("NonMaxSuppression", "boxes", "scores", net.ints(limit), net.constant([0.5]), net.constant([0.5]),
           name="selected")
    cells = (size // 8) ** 2 + (size // 16) ** 2
    net.output("boxes", FLOAT, [1, cells, 4])
    net.output("scores", FLOAT, [1, classes, cells])
    net.output("selected", INT64, ["found", 3])


def mlp(net):
    x = net.input("x", FLOAT, 64)
    for n_in, n_out in ((64, 128), (128, 128)):
        x = net.op("Relu", net.linear(x, n_in, n_out))
    net.op("Softmax", net.linear(x, 128, 10), axis=-1, name="y")
    net.output("y", FLOAT, [net.batch, 10])


def noop(net):
    net.op("Identity", net.input("x", FLOAT, 16), name="y")
    net.output("y", FLOAT, [net.batch, 16])


MODELS = {
    "resnet8": lambda net, size: resnet(net, (1, 1, 1), False, size or 224),
    "resnet18": lambda net, size: resnet(net, (2, 2, 2, 2), False, size or 224),
    "resnet50": lambda net, size: resnet(net, (3, 4, 6, 3), True, size or 224),
    "resnet152": lambda net, size: resnet(net, (3, 8, 36, 3), True, size or 224),
    "bert-base": lambda net, size: bert(net, 12, 768, 12, 30522, size or 128),
    "bert-large": lambda net, size: bert(net, 24, 1024, 16, 30522, size or 128),
    "bert-tiny": lambda net, size: bert(net, 2, 64, 2, 1000, size or 16),
    "vit-large": lambda net, size: vit(net, 24, 1024, 16, size or 224),
    "vit-tiny": lambda net, size: vit(net, 2, 64, 2, size or 32),
    "detector": lambda net, size: detector(net, size or 128),
    "mlp": lambda net, size: mlp(net),
    "noop": lambda net, size: noop(net),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", choices=sorted(MODELS))
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", type=int, default=1)
    parser.add_argument("--batch", type=int, help="fixed batch; without it the batch is dynamic (the detector's is 1)")
    parser.add_argument("--size", type=int, help="pixels per side of an image (a multiple of 32), or tokens per sequence")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        for seed in range(args.seed, args.seed + args.variants):
            net = Net(name, seed, 1 if name == "detector" else args.batch or "batch")
            MODELS[name](net, args.size)
            path = args.output / (f"{name}.onnx" if args.variants == 1 else f"{name}-{seed}.onnx")
            net.save(path)
            print(f"{path}: {len(net.nodes)} nodes, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
