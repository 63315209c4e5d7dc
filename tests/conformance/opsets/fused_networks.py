"""Networks with the operators that onnxruntime's optimiser and quantisers write. BERT stands here twice, as an exporter of
opset 13 writes it and as the optimiser leaves it: both have to give what onnxruntime computes for the former."""
import pathlib
import tempfile

import numpy as np
from onnx import helper

from harness import ask_oracle
from net import Net

MICROSOFT = "com.microsoft"


class Bert:
    """The weights of a small BERT, and its two forms over them."""

    def __init__(self, layers=2, width=32, heads=4, inner=64, words=50, batch=2, length=7, places=16):
        self.random = np.random.default_rng(500)
        self.width, self.heads, self.inner = width, heads, inner
        self.tables = [self.floats(words, width), self.floats(places, width), self.floats(2, width)]
        self.first_norm = self.norm()
        self.layers = [dict(q=self.dense(width, width), k=self.dense(width, width), v=self.dense(width, width),
                            out=self.dense(width, width), norm=self.norm(), up=self.dense(width, inner),
                            down=self.dense(inner, width), last_norm=self.norm()) for _ in range(layers)]
        self.pooler = self.dense(width, width)
        self.ids = self.random.integers(0, words, (batch, length))
        self.segments = np.tile(np.arange(length) >= 4, (batch, 1)).astype(np.int64)
        self.mask = np.array([[1] * (length - 3 * i) + [0] * 3 * i for i in range(batch)], np.int64)

    def floats(self, *shape, size=1.0):
        return self.random.uniform(-size, size, shape).astype(np.float32)

    def dense(self, into, out):
        return self.floats(into, out, size=into ** -0.5), self.floats(out, size=0.2)

    def norm(self):
        return self.random.uniform(0.5, 1.5, self.width).astype(np.float32), self.floats(self.width, size=0.2)

    def inputs(self, net):
        dims = ["batch", "length"]
        return [net.input("input_ids", self.ids, dims), net.input("token_type_ids", self.segments, dims),
                net.input("attention_mask", self.mask, dims)]

    def exported(self):
        net = Net("bert_tiny_exported", 13, 0)
        ids, segments, mask = self.inputs(net)

        def linear(x, dense):
            return net.op("Add", net.op("MatMul", x, net.const(dense[0])), net.const(dense[1]))

        def norm(x, weights):
            centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
            variance = net.op("ReduceMean", net.op("Pow", centred, net.const(2, np.float32)), axes=[-1])
            deviation = net.op("Sqrt", net.op("Add", variance, net.const(1e-12, np.float32)))
            scaled = net.op("Mul", net.op("Div", centred, deviation), net.const(weights[0]))
            return net.op("Add", scaled, net.const(weights[1]))

        length = net.dimension(ids, 1)
        places = net.op("Slice", net.const(np.arange(len(self.tables[1])).reshape(1, -1), np.int64), net.ints(0), length, net.ints(1))
        x = net.op("Add", net.op("Gather", net.const(self.tables[0]), ids), net.op("Gather", net.const(self.tables[2]), segments))
        x = norm(net.op("Add", x, net.op("Gather", net.const(self.tables[1]), places)), self.first_norm)
        seen = net.op("Cast", net.op("Unsqueeze", mask, net.ints(1, 2)), to=1)
        hidden = net.op("Mul", net.op("Sub", net.const(1, np.float32), seen), net.const(-10000, np.float32))
        for layer in self.layers:
            q, k, v = (net.split_heads(linear(x, layer[name]), self.heads, self.width // self.heads) for name in "qkv")
            scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
            scores = net.op("Div", scores, net.const(np.float32(np.sqrt(self.width // self.heads))))
            weights = net.op("Softmax", net.op("Add", scores, hidden), axis=-1)
            y = linear(net.join_heads(net.op("MatMul", weights, v), self.width), layer["out"])
            x = norm(net.op("Add", y, x), layer["norm"])
            up = linear(x, layer["up"])
            erf = net.op("Erf", net.op("Div", up, net.const(np.float32(np.sqrt(2)))))
            up = net.op("Mul", net.op("Mul", up, net.op("Add", erf, net.const(1, np.float32))), net.const(0.5, np.float32))
            x = norm(net.op("Add", linear(up, layer["down"]), x), layer["last_norm"])
        pooled = net.op("Gemm", net.op("Gather", x, net.const(0, np.int64), axis=1), net.const(self.pooler[0]),
                        net.const(self.pooler[1]))
        net.output(x, "hidden")
        net.output(net.op("Tanh", pooled), "pooled")
        return net.case

    def optimised(self):
        net = Net("bert_tiny_optimised", 13, 0)
        ids, segments, mask = (net.op("Cast", x, to=6) for x in self.inputs(net))

        def op(operator, *inputs, **more):
            return net.op(operator, *inputs, domain=MICROSOFT, **more)

        def skip_norm(y, x, dense, weights):
            product = net.op("MatMul", y, net.const(dense[0]))
            return op("SkipLayerNormalization", product, x, net.const(weights[0]), net.const(weights[1]), net.const(dense[1]),
                      epsilon=1e-12)

        x, lengths = op("EmbedLayerNormalization", ids, segments, *(net.const(t) for t in self.tables),
                        *(net.const(w) for w in self.first_norm), mask, outputs=2, epsilon=1e-12)
        for layer in self.layers:
            joined = [np.concatenate([layer[name][i] for name in "qkv"], -1) for i in range(2)]
            y = op("Attention", x, net.const(joined[0]), net.const(joined[1]), lengths, num_heads=self.heads)
            x = skip_norm(y, x, layer["out"], layer["norm"])
            up = op("BiasGelu", net.op("MatMul", x, net.const(layer["up"][0])), net.const(layer["up"][1]))
            x = skip_norm(up, x, layer["down"], layer["last_norm"])
        pooled = op("FusedGemm", net.op("Gather", x, net.const(0, np.int64), axis=1), net.const(self.pooler[0]),
                    net.const(self.pooler[1]), activation="Tanh")
        net.output(x, "hidden")
        net.output(pooled, "pooled")
        return net.case


def bert():
    weights = Bert()
    exported, optimised = weights.exported(), weights.optimised()
    with tempfile.TemporaryDirectory() as folder:
        answers = ask_oracle([exported, optimised], pathlib.Path(folder))
    for one, other in zip(*answers):
        assert np.allclose(one, other, 1e-4, 1e-5), "onnxruntime itself finds the two forms different"
    exported.expected = optimised.expected = answers[0]
    return [exported, optimised]


def decoder():
    """A decoder with a cache and weights of 4 bits, as its exporters write it."""
    net = Net("decoder_4_bits", 20, 501)
    width, heads, inner, length, past = 64, 4, 96, 3, 5
    ids = net.input("input_ids", net.random.integers(0, 40, (2, length)), ["batch", "length"])
    x = net.op("Gather", net.weight(40, width, low=-1, high=1), ids)

    def linear(x, into, out, bits=4):
        blocks = -(-into // 32)
        packed = net.const(net.random.integers(0, 256, (out, blocks, 32 * bits // 8)), np.uint8)
        inputs = [x, packed, net.const(net.floats(out, blocks, low=0.005, high=0.03))]
        if bits == 4:
            inputs.append(net.const(net.random.integers(0, 256, (out, -(-blocks // 2))), np.uint8))
        return net.op("MatMulNBits", *inputs, domain=MICROSOFT, K=into, N=out, bits=bits, block_size=32)

    def scale():
        return net.weight(width, low=0.5, high=1.5)

    normal = net.op("SimplifiedLayerNormalization", x, scale(), axis=-1, epsilon=1e-6, stash_type=1)
    for layer in range(2):
        names = [f"past_{part}_{layer}" for part in ("key", "value")]
        caches = [net.input(name, net.floats(2, heads, past, width // heads), ["batch", heads, "past", width // heads])
                  for name in names]
        q, k, v = (linear(normal, width, width) for _ in range(3))
        y, key, value = net.op("MultiHeadAttention", q, k, v, "", "", "", *caches, domain=MICROSOFT, outputs=3, num_heads=heads,
                               unidirectional=1)
        net.output(key, f"present_key_{layer}")
        net.output(value, f"present_value_{layer}")
        normal, x = skip(net, linear(y, width, width), x, scale())
        gate = net.op("QuickGelu", linear(normal, width, inner), domain=MICROSOFT, alpha=1.0)
        normal, x = skip(net, linear(net.op("Mul", gate, linear(normal, width, inner)), inner, width, 8), x, scale())
    net.output(net.op("FusedMatMul", normal, net.weight(40, width), domain=MICROSOFT, transB=1, alpha=0.5), "logits")
    return net.case


def grouped_decoder(length, past, layers=1):
    """A decoder whose queries share keys and values; lengths come from the mask, as its exporters compute them."""
    net = Net(f"decoder_grouped_{length}", 20, 504)
    width, heads, shared, size, inner = 32, 4, 2, 16, 40
    ids = net.input("input_ids", net.random.integers(0, 20, (2, length)), ["batch", "length"])
    mask = net.input("attention_mask", np.ones((2, past + length), np.int64), ["batch", "total"])
    seen = net.op("Cast", net.op("Sub", net.op("ReduceSum", mask, net.ints(1), keepdims=0), net.ints(1)), to=6)
    total = net.op("Cast", net.op("Gather", net.op("Shape", mask), net.const(1, np.int64), axis=0), to=6)
    angles = np.outer(np.arange(64), 1 / 10000 ** (np.arange(size // 2) / (size // 2)))
    tables = net.const(np.cos(angles), np.float32), net.const(np.sin(angles), np.float32)
    x = net.op("Gather", net.weight(20, width, low=-1, high=1), ids)
    normal = net.op("SimplifiedLayerNormalization", x, net.weight(width, low=0.5, high=1.5), axis=-1, epsilon=1e-6, stash_type=1)
    for layer in range(layers):
        names = [f"past_{part}_{layer}" for part in ("key", "value")]
        caches = [net.input(name, net.floats(2, shared, past, size), ["batch", shared, "past", size]) for name in names]
        joined = net.op("MatMul", normal, net.weight(width, (heads + 2 * shared) * size, low=-0.1, high=0.1))
        y, key, value = net.op("GroupQueryAttention", joined, "", "", *caches, seen, total, *tables, domain=MICROSOFT, outputs=3,
                               num_heads=heads, kv_num_heads=shared, do_rotary=1)
        net.output(key, f"present_key_{layer}")
        net.output(value, f"present_value_{layer}")
        normal, x = skip(net, net.linear(y, heads * size, width, False), x, net.weight(width, low=0.5, high=1.5))
        gate = net.silu(net.linear(normal, width, inner, False))
        up = net.op("Mul", gate, net.linear(normal, width, inner, False))
        normal, x = skip(net, net.linear(up, inner, width, False), x, net.weight(width, low=0.5, high=1.5))
    net.output(net.linear(normal, width, 20, False), "logits")
    return net.case


def skip(net, y, x, scale):
    """The normalised sum, and the sum."""
    made = [net.name("normal"), "", "", net.name("sum")]
    net.case.nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, scale], made, name=made[0], domain=MICROSOFT,
                                           epsilon=1e-6))
    return made[0], made[3]


def convolutional():
    net = Net("convolutions_fused", 13, 502)
    x = net.input("image", net.floats(2, 3, 12, 12), ["batch", 3, 12, 12])

    def conv(x, into, out, *more, **attributes):
        return net.op("FusedConv", x, net.weight(out, into, 3, 3), net.weight(out), *more, domain=MICROSOFT, kernel_shape=[3, 3],
                      pads=[1, 1, 1, 1], **attributes)

    x = conv(x, 3, 8, activation="Relu", strides=[2, 2])
    y = conv(x, 8, 8, activation="LeakyRelu", activation_params=[0.1])
    x = conv(y, 8, 8, x, activation="Relu")
    x = conv(x, 8, 8, activation="Clip", activation_params=[0.0, 6.0])
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.output(net.op("FusedGemm", x, net.weight(5, 8), net.weight(5), domain=MICROSOFT, transB=1, activation="Sigmoid"), "scores")
    return net.case


def quantised():
    """A residual block on bytes. The scales are such that no sum lies half-way between two bytes."""
    net = Net("quantised_by_operators", 13, 503)

    def ends(scale, zero):
        return [net.const(scale, np.float32), net.const(zero, np.uint8)]

    x = net.input("image", net.floats(1, 3, 8, 8), ["batch", 3, 8, 8])
    x = net.op("QuantizeLinear", x, *ends(0.00787, 128))

    def conv(x, into, out, before, after):
        w = net.const(net.random.integers(-127, 128, (out, into, 3, 3)), np.int8)
        return net.op("QLinearConv", x, *before, w, net.const(0.00361, np.float32), net.const(0, np.int8), *after,
                      pads=[1, 1, 1, 1])

    first, second, third = ends(0.0213, 121), ends(0.0317, 118), ends(0.0333, 125)
    x = conv(x, 3, 6, ends(0.00787, 128), first)
    y = net.op("QLinearLeakyRelu", x, *first, *second, domain=MICROSOFT, alpha=0.1)
    y = net.op("QLinearMul", y, *second, net.op("QLinearSigmoid", y, *second, *ends(0.00391, 0), domain=MICROSOFT),
               *ends(0.00391, 0), *third, domain=MICROSOFT)
    y = net.op("QLinearAdd", y, *third, x, *first, *second, domain=MICROSOFT)
    y = net.op("QLinearConcat", *third, y, *second, x, *first, domain=MICROSOFT, axis=1)
    y = net.op("QLinearAveragePool", y, *third, *second, domain=MICROSOFT, kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("QLinearGlobalAveragePool", y, *second, *first, domain=MICROSOFT)
    y = net.op("Flatten", net.op("DequantizeLinear", y, *first))
    b = net.const(net.random.integers(-127, 128, (12, 4)), np.int8)
    net.output(net.op("DynamicQuantizeMatMul", y, b, net.const(0.011, np.float32), "", net.weight(4), domain=MICROSOFT), "logits")
    return net.case


def all_networks():
    return [*bert(), decoder(), grouped_decoder(6, 0), grouped_decoder(1, 6), convolutional(), quantised()]
