"""Builds one network, step by step, in the form in which exporters write it."""
import numpy as np
from onnx import helper

from harness import Case


class Net:
    """Builds one graph; a method returns the name of what it adds. Weights are drawn from a generator of the network's own."""

    def __init__(self, name, opset, seed):
        self.case = Case(f"{name}_{opset}", opset, [], {}, {}, [])
        self.random = np.random.default_rng(seed)
        self.count = 0

    def name(self, stem):
        self.count += 1
        return f"/{stem}_{self.count}"

    def input(self, name, array, dims=None):
        self.case.inputs[name] = array
        if dims is not None:
            self.case.symbols[name] = dims
        return name

    def floats(self, *shape, low=-1.0, high=1.0):
        return self.random.uniform(low, high, shape).astype(np.float32)

    def weight(self, *shape, low=None, high=None):
        """Of a size that keeps what a layer gives near that of what it gets."""
        bound = 1 / np.sqrt(max(np.prod(shape[1:]) if len(shape) > 1 else 1, 1))
        return self.const(self.floats(*shape, low=-bound if low is None else low, high=bound if high is None else high))

    def const(self, array, kind=None):
        name = self.name("constant")
        self.case.constants[name] = np.asarray(array, dtype=kind)
        return name

    def ints(self, *values):
        return self.const(list(values), np.int64)

    def op(self, operator, *inputs, outputs=1, **attributes):
        made = [self.name(operator) for _ in range(outputs)]
        self.case.nodes.append(helper.make_node(operator, list(inputs), made, name=made[0], **attributes))
        return made[0] if outputs == 1 else made

    def output(self, value, name):
        self.case.nodes.append(helper.make_node("Identity", [value], [name]))
        self.case.outputs.append(name)

    def conv(self, x, into, out, size=3, stride=1, groups=1, bias=True, dims=2):
        weights = [x, self.weight(out, into // groups, *[size] * dims)] + ([self.weight(out)] if bias else [])
        return self.op("Conv", *weights, kernel_shape=[size] * dims, strides=[stride] * dims, pads=[size // 2] * (2 * dims),
                       dilations=[1] * dims, group=groups)

    def batch_norm(self, x, channels):
        return self.op("BatchNormalization", x, self.weight(channels, low=0.5, high=1.5), self.weight(channels),
                       self.weight(channels), self.weight(channels, low=0.5, high=1.5), epsilon=1e-5, momentum=0.9)

    def linear(self, x, into, out, bias=True):
        product = self.op("MatMul", x, self.weight(into, out, low=-into ** -0.5, high=into ** -0.5))
        return self.op("Add", self.weight(out), product) if bias else product

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def layer_norm(self, x, size):
        return self.op("LayerNormalization", x, self.weight(size, low=0.5, high=1.5), self.weight(size), axis=-1, epsilon=1e-6)

    def dimension(self, x, axis):
        """As exporters read one: Shape, Gather, Unsqueeze."""
        one = self.op("Gather", self.op("Shape", x), self.const(axis, np.int64), axis=0)
        return self.op("Unsqueeze", one, self.ints(0))

    def split_heads(self, x, heads, size):
        shape = self.op("Concat", self.dimension(x, 0), self.dimension(x, 1), self.ints(heads, size), axis=0)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def join_heads(self, x, width):
        turned = self.op("Transpose", x, perm=[0, 2, 1, 3])
        shape = self.op("Concat", self.dimension(turned, 0), self.dimension(turned, 1), self.ints(width), axis=0)
        return self.op("Reshape", turned, shape)

    def self_attention(self, x, width, heads, mask=None):
        q, k, v = (self.split_heads(self.linear(x, width, width), heads, width // heads) for _ in range(3))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.const(np.float32(np.sqrt(width // heads))))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        weights = self.op("Softmax", scores, axis=-1)
        return self.linear(self.join_heads(self.op("MatMul", weights, v), width), width, width)
