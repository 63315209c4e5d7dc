"""Exports of speech and text models, each in the idioms of the exporter that its function names."""
import numpy as np
from onnx import helper

from control_cases import BOOL, FLOAT, INT64, graph, info, node
from net import Net

INFINITY = np.float32(-np.inf)


def layer_norm(net, x, size):
    """Decomposed, as exporters write it at opsets without the operator."""
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
    variance = net.op("ReduceMean", net.op("Pow", centred, net.const(2, np.float32)), axes=[-1])
    deviation = net.op("Sqrt", net.op("Add", variance, net.const(1e-5, np.float32)))
    scaled = net.op("Mul", net.op("Div", centred, deviation), net.weight(size, low=0.5, high=1.5))
    return net.op("Add", scaled, net.weight(size))


def rms_norm(net, x, size):
    mean = net.op("ReduceMean", net.op("Pow", x, net.const(2, np.float32)), axes=[-1]) if net.case.opset < 18 else \
        net.op("ReduceMean", net.op("Pow", x, net.const(2, np.float32)), net.ints(-1), keepdims=1)
    inverse = net.op("Reciprocal", net.op("Sqrt", net.op("Add", mean, net.const(1e-6, np.float32))))
    return net.op("Mul", net.weight(size, low=0.5, high=1.5), net.op("Mul", x, inverse))


def erf_gelu(net, x):
    erf = net.op("Erf", net.op("Div", x, net.const(np.float32(np.sqrt(2)))))
    return net.op("Mul", net.op("Mul", x, net.op("Add", erf, net.const(1, np.float32))), net.const(0.5, np.float32))


def attention(net, q, k, v, width, heads, mask=None):
    """Of torch.onnx at opset 17: the scale is split over queries and keys, as scaled_dot_product_attention is exported."""
    size = width // heads
    q, k, v = (net.split_heads(x, heads, size) for x in (q, k, v))
    root = net.op("Sqrt", net.op("Div", net.const([1], np.float32), net.op("Sqrt", net.op("Cast", net.op(
        "Slice", net.op("Shape", q), net.ints(-1), net.ints(2 ** 63 - 1)), to=1))))
    scores = net.op("MatMul", net.op("Mul", q, root), net.op("Mul", net.op("Transpose", k, perm=[0, 1, 3, 2]), root))
    if mask is not None:
        scores = net.op("Add", scores, mask)
    return net.join_heads(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), width)


def conformer():
    """A convolution-augmented block with relative positions (Transformer-XL's shift), by the TorchScript exporter."""
    net = Net("conformer_block", 17, 600)
    width, heads, size = 16, 2, 8
    x = net.input("features", net.floats(2, 9, width), ["batch", "frames", width])

    def half_step(x):
        inner = net.silu(net.linear(layer_norm(net, x, width), width, 32))
        return net.op("Add", x, net.op("Mul", net.linear(inner, 32, width), net.const(0.5, np.float32)))

    x = half_step(x)
    normal = layer_norm(net, x, width)
    frames = net.dimension(normal, 1)
    table = net.weight(1, 31, width, low=-1, high=1)  # positions from 15 to -15
    start = net.op("Sub", net.ints(16), frames)
    places = net.op("Slice", table, start, net.op("Add", net.ints(15), frames), net.ints(1))
    q = net.op("Reshape", net.linear(normal, width, width), net.ints(0, 0, heads, size))
    k, v = (net.split_heads(net.linear(normal, width, width), heads, size) for _ in range(2))
    p = net.op("Transpose", net.op("Reshape", net.linear(places, width, width, False), net.ints(1, -1, heads, size)),
               perm=[0, 2, 1, 3])
    content, position = (net.op("Transpose", net.op("Add", q, net.weight(heads, size)), perm=[0, 2, 1, 3]) for _ in range(2))
    by_place = net.op("MatMul", position, net.op("Transpose", p, perm=[0, 1, 3, 2]))
    padded = net.op("Pad", by_place, net.ints(0, 0, 0, 1, 0, 0, 0, 0), net.const(0, np.float32))
    lead = net.op("Slice", net.op("Shape", by_place), net.ints(0), net.ints(2), net.ints(0))
    turned = net.op("Reshape", padded, net.op("Concat", lead, net.ints(-1), frames, axis=0))
    turned = net.op("Slice", turned, net.ints(1), net.ints(2 ** 63 - 1), net.ints(2))
    shifted = net.op("Reshape", turned, net.op("Shape", by_place))
    shifted = net.op("Slice", shifted, net.ints(0), frames, net.ints(3))
    scores = net.op("Add", net.op("MatMul", content, net.op("Transpose", k, perm=[0, 1, 3, 2])), shifted)
    weights = net.op("Softmax", net.op("Div", scores, net.const(np.float32(np.sqrt(size)))), axis=-1)
    x = net.op("Add", x, net.linear(net.join_heads(net.op("MatMul", weights, v), width), width, width))
    y = net.op("Transpose", layer_norm(net, x, width), perm=[0, 2, 1])
    y = net.conv(y, width, 2 * width, size=1, dims=1)
    a, b = net.op("Split", y, net.ints(width, width), outputs=2, axis=1)
    y = net.batch_norm(net.conv(net.op("Mul", a, net.op("Sigmoid", b)), width, width, size=7, groups=width, dims=1), width)
    y = net.op("Transpose", net.conv(net.silu(y), width, width, size=1, dims=1), perm=[0, 2, 1])
    net.output(layer_norm(net, half_step(net.op("Add", x, y)), width), "encoded")
    return net.case


def wav2vec():
    """A waveform's features: convolutions with a group norm written as an instance norm, and positions by a grouped
    convolution whose weight norm stayed in the graph."""
    net = Net("wav2vec_features", 17, 601)
    x = net.input("waveform", net.floats(2, 400), ["batch", "samples"])
    mean = net.op("ReduceMean", x, axes=[1], keepdims=1)
    spread = net.op("ReduceMean", net.op("Mul", net.op("Sub", x, mean), net.op("Sub", x, mean)), axes=[1], keepdims=1)
    x = net.op("Div", net.op("Sub", x, mean), net.op("Sqrt", net.op("Add", spread, net.const(1e-7, np.float32))))
    x = net.op("Unsqueeze", x, net.ints(1))
    x = net.op("Conv", x, net.weight(8, 1, 10), kernel_shape=[10], strides=[5], pads=[0, 0], dilations=[1], group=1)
    rows = net.op("Reshape", x, net.ints(0, 8, -1))
    rows = net.op("InstanceNormalization", rows, net.const(np.ones(8), np.float32), net.const(np.zeros(8), np.float32), epsilon=1e-5)
    x = net.op("Reshape", rows, net.op("Shape", x))
    x = net.op("Add", net.op("Mul", x, net.weight(8, 1, low=0.5, high=1.5)), net.weight(8, 1))
    x = erf_gelu(net, x)
    x = erf_gelu(net, net.op("Conv", x, net.weight(16, 8, 3), kernel_shape=[3], strides=[2], pads=[0, 0]))
    x = layer_norm(net, net.op("Transpose", x, perm=[0, 2, 1]), 16)
    g, v = net.weight(1, 1, 4, low=0.5, high=1.5), net.weight(16, 4, 4)
    norm = net.op("ReduceL2", v, axes=[0, 1], keepdims=1)
    filters = net.op("Mul", v, net.op("Div", g, norm))
    places = net.op("Conv", net.op("Transpose", x, perm=[0, 2, 1]), filters, net.weight(16), kernel_shape=[4], pads=[2, 2], group=4)
    places = net.op("Slice", places, net.ints(0), net.ints(-1), net.ints(2), net.ints(1))
    x = net.op("Add", x, net.op("Transpose", erf_gelu(net, places), perm=[0, 2, 1]))
    x = net.op("Add", x, net.linear(attention(net, *(net.linear(x, 16, 16) for _ in range(3)), 16, 4), 16, 16))
    net.output(net.op("LogSoftmax", net.linear(layer_norm(net, x, 16), 16, 12), axis=2), "log_probabilities")
    return net.case


def merged_decoder(cached):
    """A step of a speech recogniser's decoder as Optimum merges it: an If chooses between the cross-attention's keys and values
    that it was given and those that it computes from the encoder's states."""
    net = Net(f"merged_decoder_{'step' if cached else 'start'}", 17, 602)
    width, heads, size, length, past = 16, 2, 8, (1 if cached else 3), (3 if cached else 0)
    ids = net.input("input_ids", net.random.integers(0, 30, (1, length)), ["batch", "length"])
    memory = net.input("encoder_hidden_states", net.floats(1, 6, width), ["batch", "memory", width])
    dims = ["batch", heads, "past", size]
    own = [net.input(f"past_key_values.0.decoder.{part}", net.floats(1, heads, past, size), dims) for part in ("key", "value")]
    other = [net.input(f"past_key_values.0.encoder.{part}", net.floats(1, heads, 6 if cached else 0, size), dims)
             for part in ("key", "value")]
    use_cache = net.input("use_cache_branch", np.array([cached]))
    begin = net.dimension(own[0], 2)
    places = net.op("Slice", net.weight(12, width, low=-1, high=1), begin, net.op("Add", begin, net.dimension(ids, 1)), net.ints(0))
    x = net.op("Add", net.op("Gather", net.weight(30, width, low=-1, high=1), ids), places)
    normal = layer_norm(net, x, width)
    q = net.op("Mul", net.split_heads(net.linear(normal, width, width), heads, size), net.const(np.float32(size ** -0.5)))
    k, v = (net.op("Concat", old, net.split_heads(net.linear(normal, width, width), heads, size), axis=2) for old in own)
    total, now = net.op("Squeeze", net.dimension(k, 2), net.ints(0)), net.op("Squeeze", net.dimension(ids, 1), net.ints(0))
    zero, one = net.const(0, np.int64), net.const(1, np.int64)
    rows = net.op("Add", net.op("Range", zero, now, one), net.op("Sub", total, now))
    later = net.op("Greater", net.op("Unsqueeze", net.op("Range", zero, total, one), net.ints(0)), net.op("Unsqueeze", rows, net.ints(1)))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Where", later, net.const(np.finfo(np.float32).min, np.float32), scores)
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    x = net.op("Add", x, net.linear(net.join_heads(y, width), width, width))
    shape = net.ints(0, 0, heads, size)
    weights = [net.weight(width, width, low=-0.25, high=0.25) for _ in range(2)]
    fresh = []
    for w, name in zip(weights, "kv"):
        fresh += [node("MatMul", f"{memory} {w}", f"{name}0"), node("Reshape", f"{name}0 {shape}", f"{name}1"),
                  node("Transpose", f"{name}1", f"{name}_made", perm=[0, 2, 1, 3])]
    kept = [node("Identity", other[0], "k_kept"), node("Identity", other[1], "v_kept")]
    branches = [graph(kept, [], [info("k_kept"), info("v_kept")]), graph(fresh, [], [info("k_made"), info("v_made")])]
    made = [net.name("If"), net.name("If")]
    net.case.nodes.append(helper.make_node("If", [use_cache], made, then_branch=branches[0], else_branch=branches[1]))
    q = net.op("Mul", net.split_heads(net.linear(layer_norm(net, x, width), width, width), heads, size),
               net.const(np.float32(size ** -0.5)))
    y = net.op("MatMul", net.op("Softmax", net.op("MatMul", q, net.op("Transpose", made[0], perm=[0, 1, 3, 2])), axis=-1), made[1])
    x = layer_norm(net, net.op("Add", x, net.linear(net.join_heads(y, width), width, width)), width)
    net.output(net.linear(x, width, 30, False), "logits")
    for value, name in ((k, "decoder.key"), (v, "decoder.value"), (made[0], "encoder.key"), (made[1], "encoder.value")):
        net.output(value, f"present.0.{name}")
    return net.case


def t5():
    """An encoder with buckets of relative positions, computed in the graph."""
    net = Net("t5_encoder", 17, 603)
    width, heads, size = 16, 4, 4
    ids = net.input("input_ids", net.random.integers(0, 40, (2, 14)), ["batch", "length"])
    allowed = net.input("attention_mask", np.array([[1] * 14, [1] * 9 + [0] * 5], np.int64), ["batch", "length"])
    x = net.op("Gather", net.weight(40, width, low=-1, high=1), ids)
    places = net.op("Range", net.const(0, np.int64), net.op("Squeeze", net.dimension(ids, 1), net.ints(0)), net.const(1, np.int64))
    apart = net.op("Sub", net.op("Unsqueeze", places, net.ints(0)), net.op("Unsqueeze", places, net.ints(1)))
    bucket = net.op("Mul", net.op("Cast", net.op("Greater", apart, net.const(0, np.int64)), to=7), net.const(8, np.int64))
    apart = net.op("Abs", apart)
    large = net.op("Log", net.op("Div", net.op("Cast", apart, to=1), net.const(4, np.float32)))
    large = net.op("Mul", net.op("Div", large, net.const(np.float32(np.log(32 / 4)))), net.const(4, np.float32))
    large = net.op("Add", net.op("Cast", large, to=7), net.const(4, np.int64))
    large = net.op("Min", large, net.op("Expand", net.const(7, np.int64), net.op("Shape", large)))
    bucket = net.op("Add", bucket, net.op("Where", net.op("Less", apart, net.const(4, np.int64)), apart, large))
    bias = net.op("Transpose", net.op("Gather", net.weight(16, heads, low=-1, high=1), bucket), perm=[2, 0, 1])
    mask = net.op("Mul", net.op("Sub", net.const(1, np.float32), net.op("Cast", net.op("Unsqueeze", allowed, net.ints(1, 2)), to=1)),
                  net.const(np.finfo(np.float32).min, np.float32))
    bias = net.op("Add", net.op("Unsqueeze", bias, net.ints(0)), mask)
    for _ in range(2):
        normal = rms_norm(net, x, width)
        q, k, v = (net.split_heads(net.linear(normal, width, width, False), heads, size) for _ in range(3))
        scores = net.op("Add", net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2])), bias)
        weights = net.op("Cast", net.op("Softmax", net.op("Cast", scores, to=1), axis=-1), to=1)
        x = net.op("Add", x, net.linear(net.join_heads(net.op("MatMul", weights, v), width), width, width, False))
        normal = rms_norm(net, x, width)
        gate = net.linear(normal, width, 24, False)
        cube = net.op("Mul", net.op("Pow", gate, net.const(3, np.float32)), net.const(0.044715, np.float32))
        tanh = net.op("Tanh", net.op("Mul", net.op("Add", gate, cube), net.const(np.float32(np.sqrt(2 / np.pi)))))
        gate = net.op("Mul", net.op("Mul", gate, net.const(0.5, np.float32)), net.op("Add", tanh, net.const(1, np.float32)))
        x = net.op("Add", x, net.linear(net.op("Mul", gate, net.linear(normal, width, 24, False)), 24, width, False))
    net.output(rms_norm(net, x, width), "last_hidden_state")
    return net.case


def rotary_decoder():
    """Grouped queries, rotations and a cache as torch.onnx's dynamo exporter leaves them: keys expanded to the queries' heads,
    a mask of truth values, and rows without any key kept from becoming NaN."""
    net = Net("rotary_decoder_dynamo", 20, 604)
    width, heads, shared, size, length, past = 32, 4, 2, 8, 3, 4
    ids = net.input("input_ids", net.random.integers(0, 30, (2, length)), ["batch", "length"])
    mask = net.input("attention_mask", np.array([[1] * 7, [0] * 2 + [1] * 5], np.int64), ["batch", "total"])
    places = net.input("position_ids", np.array([[4, 5, 6], [2, 3, 4]], np.int64), ["batch", "length"])
    caches = [net.input(f"past_{part}", net.floats(2, shared, past, size), ["batch", shared, "past", size]) for part in ("key", "value")]
    batch, now = net.op("Shape", ids, start=0, end=1), net.op("Shape", ids, start=1, end=2)
    total = net.op("Shape", mask, start=1, end=2)
    frequencies = net.const(1 / 10000 ** (np.arange(4) / 4), np.float32)
    angles = net.op("Mul", net.op("Cast", net.op("Unsqueeze", places, net.ints(2)), to=1), net.op("Reshape", frequencies, net.ints(1, 1, 4)))
    angles = net.op("Unsqueeze", net.op("Concat", angles, angles, axis=-1), net.ints(1))
    cos, sin = net.op("Cos", angles), net.op("Sin", angles)

    def rotate(x):
        low = net.op("Slice", x, net.ints(0), net.ints(size // 2), net.ints(3), net.ints(1))
        high = net.op("Slice", x, net.ints(size // 2), net.ints(2 ** 63 - 1), net.ints(3), net.ints(1))
        turned = net.op("Concat", net.op("Neg", high), low, axis=-1)
        return net.op("Add", net.op("Mul", x, cos), net.op("Mul", turned, sin))

    def heads_of(x, count):
        shape = net.op("Concat", batch, now, net.ints(-1, size), axis=0)
        return net.op("Transpose", net.op("Reshape", net.linear(x, width, count * size), shape, allowzero=1), perm=[0, 2, 1, 3])

    def repeated(x):
        wide = net.op("Expand", net.op("Unsqueeze", x, net.ints(2)), net.op("Concat", batch, net.ints(shared, heads // shared), total,
                                                                            net.ints(size), axis=0))
        return net.op("Reshape", wide, net.op("Concat", batch, net.ints(heads), total, net.ints(size), axis=0), allowzero=1)

    x = net.op("Gather", net.weight(30, width, low=-1, high=1), ids)
    normal = rms_norm(net, x, width)
    q, k, v = rotate(heads_of(normal, heads)), rotate(heads_of(normal, shared)), heads_of(normal, shared)
    k, v = net.op("Concat", caches[0], k, axis=2), net.op("Concat", caches[1], v, axis=2)
    row = net.op("Range", net.op("Squeeze", net.op("Sub", total, now)), net.op("Squeeze", total), net.const(1, np.int64))
    column = net.op("Range", net.const(0, np.int64), net.op("Squeeze", total), net.const(1, np.int64))
    causal = net.op("LessOrEqual", net.op("Unsqueeze", column, net.ints(0)), net.op("Unsqueeze", row, net.ints(1)))
    seen = net.op("And", net.op("Unsqueeze", causal, net.ints(0, 1)), net.op("Unsqueeze", net.op("Cast", mask, to=9), net.ints(1, 2)))
    bias = net.op("Where", seen, net.const(0, np.float32), net.const(INFINITY))
    scores = net.op("MatMul", q, net.op("Transpose", repeated(k), perm=[0, 1, 3, 2]))
    weights = net.op("Softmax", net.op("Add", net.op("Mul", scores, net.const(np.float32(size ** -0.5))), bias), axis=-1)
    weights = net.op("Where", net.op("IsNaN", weights), net.const(0, np.float32), weights)
    y = net.op("Transpose", net.op("MatMul", weights, repeated(v)), perm=[0, 2, 1, 3])
    y = net.op("Reshape", y, net.op("Concat", batch, now, net.ints(-1), axis=0), allowzero=1)
    x = net.op("Add", x, net.linear(y, width, width, False))
    normal = rms_norm(net, x, width)
    x = net.op("Add", x, net.linear(net.op("Mul", net.silu(net.linear(normal, width, 40)), net.linear(normal, width, 40)), 40, width))
    last = net.op("Gather", rms_norm(net, x, width), net.const(-1, np.int64), axis=1)
    net.output(net.linear(last, width, 30, False), "logits")
    net.output(k, "present_key")
    net.output(v, "present_value")
    return net.case


def deberta():
    """Disentangled attention: GatherElements picks the scores of relative positions, in buckets that the graph computes."""
    net = Net("deberta_layer", 17, 605)
    width, heads, size, span = 16, 2, 8, 4
    x = net.input("hidden", net.floats(2, 7, width), ["batch", "length", width])
    length = net.op("Squeeze", net.dimension(x, 1), net.ints(0))
    places = net.op("Range", net.const(0, np.int64), length, net.const(1, np.int64))
    apart = net.op("Sub", net.op("Unsqueeze", places, net.ints(1)), net.op("Unsqueeze", places, net.ints(0)))
    sign, far = net.op("Sign", apart), net.op("Abs", apart)
    near = net.op("And", net.op("Less", apart, net.const(2, np.int64)), net.op("Greater", apart, net.const(-2, np.int64)))
    far = net.op("Where", near, net.op("Expand", net.const(1, np.int64), net.op("Shape", far)), far)
    log = net.op("Div", net.op("Log", net.op("Div", net.op("Cast", far, to=1), net.const(2, np.float32))),
                 net.const(np.float32(np.log(7 / 2))))
    log = net.op("Add", net.op("Ceil", net.op("Mul", log, net.const(1.97, np.float32))), net.const(2, np.float32))
    bucket = net.op("Where", net.op("LessOrEqual", far, net.const(2, np.int64)), apart,
                    net.op("Mul", net.op("Cast", log, to=7), sign))
    table = net.op("LayerNormalization", net.weight(2 * span, width, low=-1, high=1), net.weight(width, low=0.5, high=1.5),
                   net.weight(width), axis=-1)

    def of_heads(y):
        return net.op("Transpose", net.op("Reshape", y, net.ints(-1, 2 * span, heads, size)), perm=[0, 2, 3, 1])

    q, k, v = (net.split_heads(net.linear(x, width, width), heads, size) for _ in range(3))
    scale = net.const(np.float32(np.sqrt(3 * size)))
    scores = net.op("MatMul", q, net.op("Div", net.op("Transpose", k, perm=[0, 1, 3, 2]), scale))
    shape = net.op("Shape", scores)
    for one, sums in ((q, False), (k, True)):
        by_place = net.op("MatMul", one, of_heads(net.linear(net.op("Unsqueeze", table, net.ints(0)), width, width)))
        index = net.op("Neg", bucket) if sums else bucket
        index = net.op("Clip", net.op("Add", index, net.const(span, np.int64)), net.const(0, np.int64), net.const(2 * span - 1, np.int64))
        picked = net.op("GatherElements", by_place, net.op("Expand", net.op("Unsqueeze", index, net.ints(0, 1)), shape), axis=-1)
        picked = net.op("Transpose", picked, perm=[0, 1, 3, 2]) if sums else picked
        scores = net.op("Add", scores, net.op("Div", picked, scale))
    y = net.linear(net.join_heads(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), width), width, width)
    net.output(layer_norm(net, net.op("Add", y, x), width), "out")
    return net.case


def translator():
    """A recurrent encoder, and a Loop that a converter made of a decoder with attention: it gathers each trip's words and
    attention, and ends by a condition that the data decide."""
    net = Net("seq2seq_gru_loop", 15, 606)
    ids = net.input("source", net.random.integers(0, 20, (1, 6)), [1, "length"])
    x = net.op("Transpose", net.op("Gather", net.weight(20, 8, low=-1, high=1), ids), perm=[1, 0, 2])
    memory, state = net.op("GRU", x, net.weight(2, 24, 8, low=-0.4, high=0.4), net.weight(2, 24, 8, low=-0.4, high=0.4),
                           net.weight(2, 48, low=-0.3, high=0.3), outputs=2, hidden_size=8, direction="bidirectional")
    memory = net.op("Reshape", net.op("Transpose", memory, perm=[2, 0, 1, 3]), net.ints(0, 0, -1))
    state = net.op("Reshape", net.op("Transpose", state, perm=[1, 0, 2]), net.ints(1, 1, 16))
    w, r, b = net.weight(1, 48, 24, low=-0.3, high=0.3), net.weight(1, 48, 16, low=-0.3, high=0.3), net.weight(1, 96, low=-0.3, high=0.3)
    table, out = net.weight(12, 8, low=-2, high=2), net.weight(16, 12, low=-1.5, high=1.5)
    axis, zero, end = net.ints(1), net.ints(0), net.const(99, np.int64)
    body = [node("Gather", f"{table} token", "e", axis=0), node("Transpose", "h", "query", perm=[1, 0, 2]),
            node("Transpose", memory, "keys", perm=[0, 2, 1]), node("MatMul", "query keys", "scores"),
            node("Softmax", "scores", "weights", axis=-1), node("MatMul", f"weights {memory}", "context"),
            node("Concat", "e context", "both", axis=2),
            helper.make_node("GRU", ["both", w, r, b, "", "h"], ["", "h_next"], hidden_size=16),
            node("Squeeze", f"h_next {zero}", "flat"), node("MatMul", f"flat {out}", "logits"),
             node("ArgMax", "logits", "next", axis=-1, keepdims=1), node("Squeeze", f"next {axis}", "word"),
             node("Squeeze", f"weights {axis}", "read"), node("Squeeze", f"word {zero}", "one"), node("Equal", f"one {end}", "ended"),
             node("Not", "ended", "goes")]
    made = [net.name("Loop") for _ in range(4)]
    loop = graph(body, [info("i", INT64, []), info("go", BOOL, []), info("token", INT64, [1, 1]), info("h", FLOAT, [1, 1, 16])],
                 [info("goes", BOOL, []), info("next", INT64, [1, 1]), info("h_next", FLOAT, [1, 1, 16]), info("word", INT64, [1]),
                  info("read", FLOAT, [1, None])])
    start = net.const(np.array([[1]]))
    net.case.nodes.append(helper.make_node("Loop", [net.const(10, np.int64), net.const(np.array(True)), start, state], made, body=loop))
    net.output(made[2], "words")
    net.output(made[3], "attention")
    return net.case


def selective_scan():
    """A block of a state-space model: the recurrence is a Scan over time, as dynamo exports a higher-order scan."""
    net = Net("selective_scan", 21, 607)
    width, inner, states = 8, 12, 4
    x = net.input("hidden", net.floats(2, 9, width), ["batch", "length", width])
    both = net.linear(rms_norm(net, x, width), width, 2 * inner, False)
    y, gate = net.op("Split", both, outputs=2, axis=-1, num_outputs=2)
    y = net.op("Conv", net.op("Transpose", y, perm=[0, 2, 1]), net.weight(inner, 1, 4), net.weight(inner), group=inner, pads=[3, 3],
               kernel_shape=[4])
    y = net.op("Slice", y, net.ints(0), net.dimension(x, 1), net.ints(2))
    y = net.silu(net.op("Transpose", y, perm=[0, 2, 1]))
    steps, b, c = net.op("Split", net.linear(y, inner, 1 + 2 * states, False), net.ints(1, states, states), outputs=3, axis=-1)
    delta = net.op("Softplus", net.linear(steps, 1, inner))
    decay = net.op("Neg", net.op("Exp", net.const(np.log(np.tile(np.arange(1, states + 1), (inner, 1))), np.float32)))
    a = net.op("Exp", net.op("Mul", net.op("Unsqueeze", delta, net.ints(-1)), decay))
    driven = net.op("Mul", net.op("Unsqueeze", net.op("Mul", delta, y), net.ints(-1)), net.op("Unsqueeze", b, net.ints(2)))
    start = net.op("Expand", net.const(np.zeros((1, 1, 1)), np.float32), net.op("Concat", net.dimension(x, 0), net.ints(inner, states), axis=0))
    last = net.ints(-1)
    body = graph([node("Mul", "s a", "kept"), node("Add", "kept d", "next"), node("Unsqueeze", f"c {last}", "column"),
                  node("MatMul", "next column", "read"), node("Squeeze", f"read {last}", "out")],
                 [info("s"), info("a"), info("d"), info("c")], [info("next"), info("out")])
    made = [net.name("Scan"), net.name("Scan")]
    net.case.nodes.append(helper.make_node("Scan", [start, a, driven, c], made, body=body, num_scan_inputs=3, scan_input_axes=[1, 1, 1],
                                           scan_output_axes=[1]))
    y = net.op("Add", made[1], net.op("Mul", y, net.weight(inner)))
    y = net.linear(net.op("Mul", y, net.silu(gate)), inner, width, False)
    net.output(net.op("Add", x, y), "out")
    net.output(made[0], "state")
    return net.case


def voice_activity(rate):
    """A detector of speech: an If on the sampling rate around a spectrum by convolution, then an LSTM with its state."""
    net = Net(f"voice_activity_{rate}", 17, 608)
    window = {16000: 64, 8000: 32}
    x = net.input("input", net.floats(1, window[rate]), ["batch", "samples"])
    state = net.input("state", net.floats(2, 1, 8), [2, "batch", 8])
    sr = net.input("sr", np.array(rate, np.int64))
    branches, zero, axis = [], net.ints(0), net.ints(1)
    for kind, size in ((16000, 16), (8000, 8)):
        basis = net.weight(2 * (size // 2 + 1), 1, size, low=-0.5, high=0.5)
        pads, end, half = net.ints(0, 0, size // 2, 0, 0, size // 2), net.ints(2 ** 63 - 1), net.ints(size // 2 + 1)
        low, bias, one = net.weight(8, size // 2 + 1, 3), net.weight(8), net.ints(1)
        nodes = [node("Unsqueeze", f"{x} {axis}", "w"), node("Pad", f"w {pads}", "p", mode="reflect"),
                 node("Conv", f"p {basis}", "f", kernel_shape=[size], strides=[size // 2]),
                 node("Slice", f"f {zero} {half} {axis} {one}", "re"), node("Slice", f"f {half} {end} {axis} {one}", "im"),
                 node("Mul", "re re", "re2"), node("Mul", "im im", "im2"), node("Add", "re2 im2", "power"), node("Sqrt", "power", "m"),
                 node("Conv", f"m {low} {bias}", "c", kernel_shape=[3], pads=[1, 1], strides=[2]), node("Relu", "c", "r")]
        branches.append(graph(nodes, [], [info("r", FLOAT, None)]))
    made = net.name("If")
    net.case.nodes.append(helper.make_node("If", [net.op("Equal", sr, net.const(16000, np.int64))], [made], then_branch=branches[0],
                                           else_branch=branches[1]))
    h, c = (net.op("Unsqueeze", net.op("Gather", state, net.const(i, np.int64), axis=0), net.ints(0)) for i in range(2))
    out = net.op("LSTM", net.op("Transpose", made, perm=[2, 0, 1]), net.weight(1, 32, 8, low=-0.4, high=0.4),
                 net.weight(1, 32, 8, low=-0.4, high=0.4), net.weight(1, 64, low=-0.3, high=0.3), "", h, c, outputs=3, hidden_size=8)
    y = net.op("Transpose", net.op("Squeeze", out[0], net.ints(1)), perm=[1, 2, 0])
    y = net.op("Sigmoid", net.conv(net.op("Relu", y), 8, 1, size=1, dims=1))
    net.output(net.op("ReduceMean", y, axes=[2], keepdims=0), "output")
    net.output(net.op("Concat", out[1], out[2], axis=0), "stateN")
    return net.case


def all_exports():
    return [conformer(), wav2vec(), merged_decoder(False), merged_decoder(True), t5(), rotary_decoder(), deberta(), translator(),
            selective_scan(), voice_activity(16000), voice_activity(8000)]
