"""Exports of models on tables, graphs and texts, and of models in fewer bits, each in the idioms of the exporter that its function
names."""
import dataclasses

import numpy as np
from onnx import TensorProto, helper

import classic_trees as trees
from classic_cases import ML
from control_cases import choose, node
from export_speech_text import layer_norm, rms_norm
from fused_networks import MICROSOFT, skip
from net import Net


def experts():
    """A mixture of experts: each expert reads its own tokens, which the run finds, and adds to their rows."""
    net = Net("mixture_of_experts", 18, 640)
    width, count = 8, 4
    x = net.input("hidden", net.floats(2, 5, width), ["batch", "length", width])
    flat = net.op("Reshape", x, net.ints(-1, width))
    scores = net.op("Softmax", net.linear(flat, width, count, False), axis=1)
    best, chosen = net.op("TopK", scores, net.ints(2), outputs=2, axis=-1, largest=1, sorted=1)
    best = net.op("Div", best, net.op("ReduceSum", best, net.ints(-1), keepdims=1))
    hot = net.op("OneHot", chosen, net.const(count, np.int64), net.const([0, 1], np.int64), axis=-1)
    hot = net.op("Transpose", hot, perm=[2, 1, 0])
    total = net.op("Expand", net.const(0, np.float32), net.op("Shape", flat))
    for expert in range(count):
        found = net.op("NonZero", net.op("Gather", hot, net.const(expert, np.int64), axis=0))
        place, token = (net.op("Squeeze", part, net.ints(0)) for part in net.op("Split", found, net.ints(1, 1), outputs=2, axis=0))
        rows = net.op("Gather", flat, token, axis=0)
        gate, up = net.linear(rows, width, 12, False), net.linear(rows, width, 12, False)
        rows = net.linear(net.op("Mul", net.silu(gate), up), 12, width, False)
        pairs = net.op("Concat", net.op("Unsqueeze", token, net.ints(-1)), net.op("Unsqueeze", place, net.ints(-1)), axis=-1)
        rows = net.op("Mul", rows, net.op("Unsqueeze", net.op("GatherND", best, pairs), net.ints(-1)))
        total = net.op("ScatterND", total, net.op("Unsqueeze", token, net.ints(-1)), rows, reduction="add")
    net.output(net.op("Reshape", total, net.op("Shape", x)), "out")
    net.output(scores, "router")
    return net.case


def table_transformer():
    """Tokens of numbers and of categories, and one that asks for the class; gated layers, the last reads one token."""
    net = Net("table_transformer", 21, 641)
    width = 8
    numbers = net.input("x_num", net.floats(4, 3), ["batch", 3])
    kinds = net.input("x_cat", net.random.integers(0, 3, (4, 2)), ["batch", 2])
    tokens = net.op("Mul", net.op("Unsqueeze", numbers, net.ints(2)), net.weight(3, width, low=-1, high=1))
    words = net.op("Gather", net.weight(6, width, low=-1, high=1), net.op("Add", kinds, net.const([[0, 3]], np.int64)))
    asked = net.op("Expand", net.weight(width, low=-1, high=1), net.op("Concat", net.dimension(numbers, 0), net.ints(1, width), axis=0))
    x = net.op("Add", net.op("Concat", tokens, words, asked, axis=1), net.weight(6, width))
    for last in (False, True):
        normal = net.layer_norm(x, width)
        if last:
            x = net.op("Slice", x, net.ints(-1), net.ints(2 ** 63 - 1), net.ints(1))
        rows = net.op("Slice", normal, net.ints(-1), net.ints(2 ** 63 - 1), net.ints(1)) if last else normal
        q, k, v = (net.op("Gemm", net.op("Reshape", y, net.ints(-1, width)), net.weight(width, width), net.weight(width), transB=1)
                   for y in (rows, normal, normal))
        q, k, v = (net.op("Transpose", net.op("Reshape", y, net.op("Concat", net.dimension(numbers, 0), net.ints(-1, 2, 4), axis=0)),
                          perm=[0, 2, 1, 3]) for y in (q, k, v))
        weights = net.op("Softmax", net.op("Div", net.op("Einsum", q, k, equation="bhqd,bhkd->bhqk"), net.const(2, np.float32)), axis=-1)
        y = net.join_heads(net.op("Einsum", weights, v, equation="bhqk,bhkd->bhqd"), width)
        x = net.op("Add", x, net.linear(y, width, width))
        a, b = net.op("Split", net.linear(net.layer_norm(x, width), width, 24), outputs=2, axis=-1, num_outputs=2)
        x = net.op("Add", x, net.linear(net.op("Mul", a, net.op("Relu", b)), 12, width))
    x = net.op("Relu", net.layer_norm(net.op("Squeeze", x, net.ints(1)), width))
    net.output(net.op("Gemm", x, net.weight(2, width), net.weight(2), transB=1), "logits")
    return net.case


def graph_network():
    """Two layers over the edges of a graph, by torch_geometric: degrees and sums by ScatterElements."""
    net = Net("graph_convolution", 18, 642)
    x = net.input("x", net.floats(6, 5), ["nodes", 5])
    edges = net.input("edge_index", np.array([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]], np.int64), [2, "edges"])
    count = net.op("Gather", net.op("Shape", x), net.const(0, np.int64), axis=0)
    own = net.op("Range", net.const(0, np.int64), count, net.const(1, np.int64))
    edges = net.op("Concat", edges, net.op("Expand", net.op("Unsqueeze", own, net.ints(0)), net.op("Concat", net.ints(2), net.op(
        "Unsqueeze", count, net.ints(0)), axis=0)), axis=1)
    source, target = (net.op("Gather", edges, net.const(i, np.int64), axis=0) for i in range(2))
    ones = net.op("ConstantOfShape", net.op("Shape", target), value=helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0]))
    zeros = net.op("ConstantOfShape", net.op("Unsqueeze", count, net.ints(0)))
    degree = net.op("ScatterElements", zeros, target, ones, axis=0, reduction="add")
    scale = net.op("Pow", degree, net.const(-0.5, np.float32))
    scale = net.op("Where", net.op("Equal", scale, net.const(np.inf, np.float32)), net.const(0, np.float32), scale)
    scale = net.op("Mul", net.op("Gather", scale, source), net.op("Gather", scale, target))
    for into, out in ((5, 8), (8, 3)):
        rows = net.op("Gather", net.op("MatMul", x, net.weight(into, out, low=-0.5, high=0.5)), source, axis=0)
        rows = net.op("Mul", net.op("Unsqueeze", scale, net.ints(-1)), rows)
        index = net.op("Expand", net.op("Unsqueeze", target, net.ints(-1)), net.op("Shape", rows))
        start = net.op("ConstantOfShape", net.op("Concat", net.op("Unsqueeze", count, net.ints(0)), net.ints(out), axis=0))
        x = net.op("Add", net.op("ScatterElements", start, index, rows, axis=0, reduction="add"), net.weight(out))
        x = net.op("Relu", x) if out == 8 else x
    net.output(net.op("LogSoftmax", x, axis=1), "log_probabilities")
    return net.case


def squeezed(batch):
    """A scripted function that squeezes where a dimension is 1: its branches have other numbers of dimensions."""
    net = Net(f"scripted_squeeze_{batch}", 17, 643)
    x = net.input("x", net.floats(batch, 6), ["batch", 6])
    y = net.op("Unsqueeze", net.op("Relu", net.linear(x, 6, 4)), net.ints(1)) if batch > 1 else net.op("Relu", net.linear(x, 6, 4))
    axis = 1 if batch > 1 else 0
    size = net.op("Gather", net.op("Shape", y), net.const(axis, np.int64), axis=0)
    axes, made = net.ints(axis), net.name("If")
    net.case.nodes.append(choose(net.op("Equal", size, net.const(1, np.int64)), [node("Squeeze", f"{y} {axes}", "r")],
                                 [node("Identity", y, "r")], made))
    net.output(net.op("Softmax", net.op("MatMul", made, net.weight(4, 3)), axis=-1), "out")
    return net.case


def vocoder():
    """Waveforms by transposed convolutions and dilated ones, whose weight norm stayed in the graph."""
    net = Net("vocoder", 17, 644)
    x = net.conv(net.input("mel", net.floats(1, 6, 7), ["batch", 6, "frames"]), 6, 16, size=7, dims=1)
    for into, out, rate in ((16, 8, 4), (8, 4, 2)):
        v, g = net.weight(into, out, 2 * rate, low=-1, high=1), net.weight(into, 1, 1, low=0.5, high=1.5)
        filters = net.op("Mul", v, net.op("Div", g, net.op("Sqrt", net.op("ReduceSum", net.op("Mul", v, v), net.ints(1, 2), keepdims=1))))
        x = net.op("ConvTranspose", net.op("LeakyRelu", x, alpha=0.1), filters, net.weight(out), kernel_shape=[2 * rate], strides=[rate],
                   pads=[rate // 2, rate // 2], dilations=[1], group=1)
        parts = []
        for size, dilation in ((3, 1), (3, 3), (5, 2)):
            reach = dilation * (size - 1) // 2
            y = net.op("Conv", net.op("LeakyRelu", x, alpha=0.1), net.weight(out, out, size), net.weight(out), kernel_shape=[size],
                       dilations=[dilation], pads=[reach, reach])
            parts.append(net.op("Add", y, x))
        x = net.op("Div", net.op("Add", net.op("Add", parts[0], parts[1]), parts[2]), net.const(3, np.float32))
    x = net.op("Tanh", net.conv(net.op("LeakyRelu", x, alpha=0.01), 4, 1, size=7, dims=1))
    net.output(net.op("Squeeze", x, net.ints(1)), "waveform")
    return net.case


def keras_lstm():
    """By tf2onnx: states from the shape of the input, time first by Transposes, and a bidirectional layer as two of one direction."""
    net = Net("keras_bidirectional", 13, 645)
    x = net.input("tokens:0", net.random.integers(0, 20, (3, 6)).astype(np.int32), ["unk__1", "unk__2"])
    x = net.op("Transpose", net.op("Gather", net.weight(20, 5, low=-1, high=1), x, axis=0), perm=[1, 0, 2])
    batch = net.op("Slice", net.op("Shape", x), net.ints(1), net.ints(2), net.ints(0))
    state = net.op("Expand", net.const(np.zeros((1, 1, 4)), np.float32), net.op("Concat", net.ints(1), batch, net.ints(4), axis=0))
    ends = []
    for direction in ("forward", "reverse"):
        out = net.op("LSTM", x, net.weight(1, 16, 5, low=-0.5, high=0.5), net.weight(1, 16, 4, low=-0.5, high=0.5),
                     net.weight(1, 32, low=-0.3, high=0.3), "", state, state, outputs=3, hidden_size=4, direction=direction)
        ends.append(net.op("Squeeze", out[1], net.ints(0)))
    y = net.op("Relu", net.op("Add", net.op("MatMul", net.op("Concat", *ends, axis=-1), net.weight(8, 6)), net.weight(6)))
    net.output(net.op("Sigmoid", net.op("Add", net.op("MatMul", y, net.weight(6, 1)), net.weight(1))), "dense_1")
    return net.case


def quantised_mobile():
    """A block of MobileNet as quantize_static leaves it: bytes with a zero point, weights for each channel, biases of 32 bits. The
    scales are such that no value lies half-way between two bytes."""
    net = Net("mobilenet_qdq", 13, 646)

    def ends(scale, zero):
        return [net.const(scale, np.float32), net.const(zero, np.uint8)]

    def both(x, scale, zero):
        e = ends(scale, zero)
        return net.op("DequantizeLinear", net.op("QuantizeLinear", x, *e), *e)

    def conv(x, scale, into, out, size=1, groups=1, stride=1):
        scales = net.floats(out, low=0.004, high=0.009)
        w = net.op("DequantizeLinear", net.const(net.random.integers(-127, 128, (out, into // groups, size, size)), np.int8),
                   net.const(scales), net.const(np.zeros(out), np.int8), axis=0)
        b = net.op("DequantizeLinear", net.const(net.random.integers(-900, 900, out), np.int32), net.const(scales * np.float32(scale)),
                   net.const(np.zeros(out), np.int32), axis=0)
        return net.op("Conv", x, w, b, kernel_shape=[size, size], strides=[stride] * 2, pads=[size // 2] * 4, group=groups)

    def clip(x):
        return net.op("Clip", x, net.const(0, np.float32), net.const(6, np.float32))

    x = both(net.input("input", net.floats(1, 3, 10, 10), ["batch", 3, 10, 10]), 0.00787, 127)
    x = both(clip(conv(x, 0.00787, 3, 8, 3, stride=2)), 0.0213, 0)
    y = both(clip(conv(x, 0.0213, 8, 16)), 0.0231, 0)
    y = both(clip(conv(y, 0.0231, 16, 16, 3, groups=16)), 0.0219, 0)
    y = both(conv(y, 0.0219, 16, 8), 0.0517, 121)
    x = both(net.op("Add", x, y), 0.0611, 113)
    x = both(net.op("GlobalAveragePool", x), 0.0317, 103)
    w = net.op("DequantizeLinear", net.const(net.random.integers(-127, 128, (5, 8)), np.int8), net.const(0.0071, np.float32),
               net.const(0, np.int8))
    x = net.op("Gemm", net.op("Flatten", x, axis=1), w, net.weight(5), transB=1)
    net.output(both(x, 0.0413, 131), "output")
    return net.case


def four_bit_decoder():
    """A step of a decoder by onnxruntime-genai's builder: weights of 4 bits, grouped queries with their rotations inside, lengths
    from the mask."""
    net = Net("genai_decoder_4_bits", 21, 647)
    width, heads, shared, size, inner, past = 32, 4, 2, 16, 32, 5
    ids = net.input("input_ids", net.random.integers(0, 20, (1, 1)), ["batch", "length"])
    mask = net.input("attention_mask", np.ones((1, past + 1), np.int64), ["batch", "total"])
    caches = [net.input(f"past_key_values.0.{part}", net.floats(1, shared, past, size), ["batch", shared, "past", size]) for part in ("key", "value")]

    def linear(x, into, out):
        packed = net.const(net.random.integers(0, 256, (out, into // 32, 16)), np.uint8)
        return net.op("MatMulNBits", x, packed, net.const(net.floats(out * (into // 32), low=0.005, high=0.03)), domain=MICROSOFT, K=into,
                      N=out, bits=4, block_size=32, accuracy_level=0)

    seen = net.op("Cast", net.op("Sub", net.op("ReduceSum", mask, net.ints(1), keepdims=0), net.ints(1)), to=6)
    total = net.op("Cast", net.op("Gather", net.op("Shape", mask), net.const(1, np.int64), axis=0), to=6)
    angles = np.outer(np.arange(32), 1 / 10000 ** (np.arange(size // 2) / (size // 2)))
    tables = net.const(np.cos(angles), np.float32), net.const(np.sin(angles), np.float32)
    x = net.op("Gather", net.weight(20, width, low=-1, high=1), ids)
    normal = net.op("SimplifiedLayerNormalization", x, net.weight(width, low=0.5, high=1.5), axis=-1, epsilon=1e-5, stash_type=1)
    q, k, v = linear(normal, width, heads * size), linear(normal, width, shared * size), linear(normal, width, shared * size)
    y, key, value = net.op("GroupQueryAttention", q, k, v, *caches, seen, total, *tables, domain=MICROSOFT, outputs=3, num_heads=heads,
                           kv_num_heads=shared, scale=size ** -0.5, do_rotary=1, rotary_interleaved=0, local_window_size=-1)
    normal, x = skip(net, linear(y, heads * size, width), x, net.weight(width, low=0.5, high=1.5))
    gate = net.silu(linear(normal, width, inner))
    normal, x = skip(net, linear(net.op("Mul", gate, linear(normal, width, inner)), inner, width), x, net.weight(width, low=0.5, high=1.5))
    net.output(linear(normal, width, 20), "logits")
    net.output(key, "present.0.key")
    net.output(value, "present.0.value")
    return net.case


def islands():
    """An encoder in half precision, as a converter leaves it: norms and Softmax, which were named as exceptions, compute in FP32
    between Casts."""
    net = Net("half_precision_islands", 17, 648)
    width, heads = 16, 2
    x = net.op("Cast", net.input("hidden", net.floats(1, 6, width), ["batch", "length", width]), to=TensorProto.FLOAT16)

    def half(*shape):
        return net.const(net.case.constants.pop(net.weight(*shape)), np.float16)

    def linear(x, into, out):
        return net.op("Add", net.op("MatMul", x, half(into, out)), half(out))

    def in_single(x, compute):
        return net.op("Cast", compute(net.op("Cast", x, to=TensorProto.FLOAT)), to=TensorProto.FLOAT16)

    normal = in_single(x, lambda y: layer_norm(net, y, width))
    q, k, v = (net.split_heads(linear(normal, width, width), heads, width // heads) for _ in range(3))
    scores = net.op("Mul", net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2])), net.const(width ** -0.5, np.float16))
    weights = in_single(scores, lambda y: net.op("Softmax", y, axis=-1))
    x = net.op("Add", x, linear(net.join_heads(net.op("MatMul", weights, v), width), width, width))
    up = linear(in_single(x, lambda y: rms_norm(net, y, width)), width, 32)
    x = net.op("Add", x, linear(net.op("Mul", up, net.op("Sigmoid", up)), 32, width))
    net.output(x, "out")
    return net.case


def text_pipeline():
    """Texts to classes: words, their weighted counts in rows of length 1, and a linear model, by skl2onnx."""
    net = Net("sklearn_text_linear", 20, 649)
    net.case.domains = {ML: 3}
    texts = ["the gpu is out of memory", "please refund my last order", "gpu gpu driver error", "where is the order", "hello"]
    x = net.input("text", np.array(texts, np.object_), ["N"])
    x = net.op("StringNormalizer", x, case_change_action="LOWER", is_case_sensitive=1, locale="C")
    words, _ = net.op("StringSplit", x, outputs=2)
    pool = ["gpu", "memory", "driver", "error", "order", "refund", "where", "the", "is"]
    counts = net.op("TfIdfVectorizer", words, mode="TFIDF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                    ngram_indexes=list(range(len(pool))), pool_strings=pool, weights=[float(w) for w in net.floats(len(pool), low=1, high=3)])
    rows = net.op("Normalizer", counts, domain=ML, norm="L2")
    label, scores = net.op("LinearClassifier", rows, domain=ML, outputs=2, classlabels_ints=[0, 1], multi_class=1, post_transform="LOGISTIC",
                           coefficients=[float(c) for c in np.outer([-1, 1], net.floats(len(pool), low=-2, high=2)).ravel()],
                           intercepts=[-0.1, 0.1])
    net.output(net.op("Cast", label, to=7), "output_label")
    net.output(net.op("Normalizer", scores, domain=ML, norm="L1"), "probabilities")
    return net.case


def isolation_forest():
    """Outliers by the depth at which trees set rows apart: skl2onnx writes the trees' leaves and their paths' lengths, and the score as
    arithmetic."""
    net = Net("isolation_forest", 15, 650)
    net.case.domains = {ML: 1}
    rows, score = trees.tabular(200, 5, seed=651)
    x = net.input("X", rows[:20], ["N", 5])
    depths = []
    for seed in range(4):
        grown = trees.boost(rows[:, :5], score, 1, 4, 652 + seed, "squares")
        sizes = with_leaves(grown[0], net.random)
        features = net.const(np.array([[4, 0, 1, 3, 2]], np.int64))
        picked = net.op("ArrayFeatureExtractor", x, features, domain=ML)
        leaves = net.op("TreeEnsembleRegressor", picked, domain=ML, n_targets=1, **trees.attributes([sizes[0]], "target", [0], missing=False))
        length = net.op("TreeEnsembleRegressor", picked, domain=ML, n_targets=1, **trees.attributes([sizes[1]], "target", [0], missing=False))
        size = net.op("Cast", leaves, to=11)
        log = net.op("Log", net.op("Sub", net.op("Max", size, net.const(2.0, np.float64)), net.const(1.0, np.float64)))
        more = net.op("Sub", net.op("Mul", net.op("Add", log, net.const(0.5772156649, np.float64)), net.const(2.0, np.float64)),
                      net.op("Div", net.op("Mul", net.const(2.0, np.float64), net.op("Sub", size, net.const(1.0, np.float64))), size))
        more = net.op("Where", net.op("Less", size, net.const(1.5, np.float64)), net.const(0.0, np.float64), more)
        depths.append(net.op("Add", more, net.op("Cast", length, to=11)))
    depth = net.op("Div", net.op("Sum", *depths), net.const(4 * 9.7, np.float64))
    value = net.op("Sub", net.const(0.5, np.float64), net.op("Pow", net.const(2.0, np.float64), net.op("Neg", depth)))
    outlier = net.op("Cast", net.op("Less", value, net.const(0.0, np.float64)), to=7)
    net.output(net.op("Sub", net.const(1, np.int64), net.op("Mul", outlier, net.const(2, np.int64))), "label")
    net.output(net.op("Cast", value, to=1), "scores")
    return net.case


def with_leaves(tree, random, depth=0):
    """The tree twice: with how many rows each leaf has, and with how deep it lies."""
    if not isinstance(tree, trees.Split):
        return float(random.integers(1, 9)), float(depth)
    left, right = with_leaves(tree.left, random, depth + 1), with_leaves(tree.right, random, depth + 1)
    return tuple(dataclasses.replace(tree, left=left[i], right=right[i]) for i in range(2))


def categorical_boosting():
    """LightGBM with categories, whose sets become chains of equalities, in parts that are summed in double precision."""
    net = Net("lightgbm_categories_split", 15, 660)
    net.case.domains = {ML: 1}
    rows, score = trees.tabular(300, 6, seed=661)
    rows[:, 0] = np.random.default_rng(662).integers(0, 6, len(rows))
    score = score + np.isin(rows[:, 0], (1, 4))
    x = net.input("input", rows[:24], ["N", 6])
    parts = []
    for seed in range(3):
        grown = trees.boost(rows[:, :6], score, 4, 3, 663 + seed, "squares")
        chain = [trees.Split(0, float(kind), False, 0.1 * kind + 0.05, grown[kind - 1]) for kind in (1, 4)]
        lists = trees.attributes(grown + chain, "target", [0] * (len(grown) + len(chain)), missing=False)
        for i, (tree, at) in enumerate(zip(lists["nodes_treeids"], lists["nodes_nodeids"])):
            if tree >= len(grown) and at == 0:
                lists["nodes_modes"][i] = "BRANCH_EQ"
        part = net.op("TreeEnsembleRegressor", x, domain=ML, n_targets=1, post_transform="NONE", **lists)
        parts.append(net.op("Cast", part, to=TensorProto.DOUBLE))
    net.output(net.op("Cast", net.op("Sum", *parts), to=TensorProto.FLOAT), "variable")
    return net.case


def all_exports():
    return [experts(), table_transformer(), graph_network(), squeezed(1), squeezed(3), vocoder(), keras_lstm(), quantised_mobile(),
            four_bit_decoder(), islands(), text_pipeline(), isolation_forest(), categorical_boosting()]
