"""Small networks in the form in which exporters write them at opset 18 to 23: shapes computed from shapes, axes as inputs,
normalisation and attention as operators of their own."""
import numpy as np

from net import Net


def cnn():
    net = Net("cnn_batch_norm", 18, 1)
    x = net.input("image", net.floats(2, 3, 16, 16), ["batch", 3, 16, 16])
    for into, out, stride in ((3, 8, 1), (8, 16, 2), (16, 16, 1)):
        x = net.op("Relu", net.batch_norm(net.conv(x, into, out, stride=stride, bias=False), out))
    skip = x
    x = net.op("Relu", net.op("Add", net.batch_norm(net.conv(x, 16, 16, bias=False), 16), skip))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("ReduceMean", x, net.ints(2, 3), keepdims=0)
    net.output(net.op("Gemm", x, net.weight(10, 16), net.weight(10), transB=1), "logits")
    return net.case


def vision_transformer():
    net = Net("vision_transformer", 20, 2)
    x = net.input("pixels", net.floats(2, 3, 16, 16), ["batch", 3, 16, 16])
    x = net.op("Conv", x, net.weight(32, 3, 4, 4), net.weight(32), kernel_shape=[4, 4], strides=[4, 4])
    x = net.op("Transpose", net.op("Reshape", x, net.ints(0, 32, 16)), perm=[0, 2, 1])
    token = net.op("Expand", net.weight(1, 1, 32), net.op("Concat", net.dimension(x, 0), net.ints(1, 32), axis=0))
    x = net.op("Add", net.op("Concat", token, x, axis=1), net.weight(1, 17, 32))
    for _ in range(2):
        x = net.op("Add", x, net.self_attention(net.layer_norm(x, 32), 32, 4))
        inner = net.op("Gelu", net.linear(net.layer_norm(x, 32), 32, 64), approximate="none")
        x = net.op("Add", x, net.linear(inner, 64, 32))
    first = net.op("Gather", net.layer_norm(x, 32), net.const(0, np.int64), axis=1)
    net.output(net.op("Gemm", first, net.weight(5, 32), net.weight(5), transB=1), "logits")
    return net.case


def decoder(length, past):
    net = Net(f"decoder_with_cache_{length}", 23, 3)
    heads, kv, size, width = 4, 2, 8, 32
    ids = net.input("input_ids", net.random.integers(0, 50, (2, length)), ["batch", "length"])
    positions = net.input("position_ids", np.tile(np.arange(past, past + length), (2, 1)), ["batch", "length"])
    keys = net.input("past_key", net.floats(2, kv, past, size), ["batch", kv, "past", size])
    values = net.input("past_value", net.floats(2, kv, past, size), ["batch", kv, "past", size])
    angles = np.outer(np.arange(64), 1 / 10000 ** (np.arange(size // 2) / (size // 2)))
    cos, sin = net.const(np.cos(angles), np.float32), net.const(np.sin(angles), np.float32)
    x = net.op("Gather", net.weight(50, width, low=-1, high=1), ids, axis=0)
    normal = net.op("RMSNormalization", x, net.weight(width, low=0.5, high=1.5), axis=-1, epsilon=1e-6)
    q = net.op("RotaryEmbedding", net.linear(normal, width, heads * size, False), cos, sin, positions, num_heads=heads)
    k = net.op("RotaryEmbedding", net.linear(normal, width, kv * size, False), cos, sin, positions, num_heads=kv)
    v = net.linear(normal, width, kv * size, False)
    y, key, value = net.op("Attention", q, k, v, "", keys, values, outputs=3, q_num_heads=heads, kv_num_heads=kv, is_causal=1)
    x = net.op("Add", x, net.linear(y, heads * size, width, False))
    normal = net.op("RMSNormalization", x, net.weight(width, low=0.5, high=1.5), axis=-1, epsilon=1e-6)
    gated = net.op("Mul", net.silu(net.linear(normal, width, 64, False)), net.linear(normal, width, 64, False))
    x = net.op("Add", x, net.linear(gated, 64, width, False))
    net.output(net.linear(net.op("RMSNormalization", x, net.weight(width, low=0.5, high=1.5)), width, 50, False), "logits")
    net.output(key, "present_key")
    net.output(value, "present_value")
    return net.case


def unet(opset):
    net = Net("unet_group_norm", opset, 4)
    x = net.input("sample", net.floats(1, 4, 8, 8), ["batch", 4, "height", "width"])

    def block(x, into, out):
        x = net.conv(x, into, out)
        if opset >= 21:
            x = net.op("GroupNormalization", x, net.weight(out, low=0.5, high=1.5), net.weight(out), num_groups=4)
        else:  # as an exporter without the operator writes it
            rows = net.op("Reshape", x, net.ints(0, 4, -1))
            rows = net.op("InstanceNormalization", rows, net.const(np.ones(4), np.float32), net.const(np.zeros(4), np.float32))
            x = net.op("Reshape", rows, net.op("Shape", x))
            x = net.op("Add", net.op("Mul", x, net.weight(out, 1, 1)), net.weight(out, 1, 1))
        return net.silu(x)

    skip = block(x, 4, 8)
    x = net.op("AveragePool", skip, kernel_shape=[2, 2], strides=[2, 2])
    x = block(x, 8, 16)
    x = net.op("Resize", x, "", net.const([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
               coordinate_transformation_mode="asymmetric")
    net.output(net.conv(block(net.op("Concat", x, skip, axis=1), 24, 8), 8, 4), "noise")
    return net.case


def detector():
    net = Net("detector", 19, 5)
    x = net.input("image", net.floats(1, 3, 20, 28), [1, 3, "height", "width"])
    small = net.op("Resize", x, "", "", net.ints(16, 16), mode="linear", axes=[2, 3], antialias=1,
                   coordinate_transformation_mode="half_pixel")
    y = net.op("LeakyRelu", net.batch_norm(net.conv(small, 3, 8, stride=2), 8), alpha=0.1)
    y = net.op("LeakyRelu", net.batch_norm(net.conv(y, 8, 16, stride=2), 16), alpha=0.1)
    up = net.op("Resize", y, "", net.const([2, 2], np.float32), mode="nearest", axes=[2, 3], nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")
    head = net.op("Sigmoid", net.conv(up, 16, 4 + 3, size=1))
    flat = net.op("Transpose", net.op("Reshape", head, net.ints(1, 7, -1)), perm=[0, 2, 1])
    boxes, scores = net.op("Split", flat, net.ints(4, 3), outputs=2, axis=2)
    chosen = net.op("NonMaxSuppression", boxes, net.op("Transpose", scores, perm=[0, 2, 1]), net.ints(5),
                    net.const([0.5], np.float32), net.const([0.2], np.float32), center_point_box=1)
    places = net.op("Slice", chosen, net.ints(2), net.ints(3), net.ints(1))
    picked = net.op("Gather", net.op("Squeeze", boxes, net.ints(0)), net.op("Squeeze", places, net.ints(1)), axis=0)
    net.output(chosen, "selected")
    net.output(picked, "boxes")
    return net.case


def recurrent(opset, operator, gates):
    net = Net(f"recurrent_{operator.lower()}", opset, 6)
    x = net.input("tokens", net.random.integers(0, 30, (2, 7)), ["batch", 7])
    x = net.op("Transpose", net.op("Gather", net.weight(30, 6, low=-1, high=1), x), perm=[1, 0, 2])
    more = dict(linear_before_reset=1) if operator == "GRU" else {}
    made = net.op(operator, x, net.weight(2, gates * 5, 6, low=-0.4, high=0.4), net.weight(2, gates * 5, 5, low=-0.4, high=0.4),
                  net.weight(2, 2 * gates * 5, low=-0.4, high=0.4), outputs=2, hidden_size=5, direction="bidirectional", **more)
    y = net.op("Reshape", net.op("Transpose", made[0], perm=[2, 0, 1, 3]), net.ints(0, 0, -1))
    net.output(net.linear(y, 10, 4), "tags")
    net.output(made[1], "state")
    return net.case


def quantised():
    net = Net("quantised_qdq", 21, 7)
    zero = net.const(0, np.int8)

    def both(x, scale, zero_point=zero):
        q = net.op("QuantizeLinear", x, net.const(scale, np.float32), zero_point)
        return net.op("DequantizeLinear", q, net.const(scale, np.float32), zero_point)

    def weights(*shape):
        stored = net.const(net.random.integers(-127, 128, shape), np.int8)
        scales = net.const(net.floats(shape[0], low=0.001, high=0.004))
        return net.op("DequantizeLinear", stored, scales, net.const(np.zeros(shape[0]), np.int8), axis=0)

    x = both(net.input("image", net.floats(2, 3, 8, 8), ["batch", 3, 8, 8]), 0.011)
    x = net.op("Relu", net.op("Conv", x, weights(8, 3, 3, 3), net.weight(8), pads=[1, 1, 1, 1]))
    x = both(x, 0.013)
    x = both(net.op("GlobalAveragePool", x), 0.007)
    x = net.op("Flatten", x)
    blocks = net.op("DequantizeLinear", net.const(net.random.integers(-127, 128, (8, 6)), np.int8),
                    net.const(net.floats(2, 6, low=0.001, high=0.01)), axis=0, block_size=4)
    net.output(net.op("Add", net.op("MatMul", x, blocks), net.weight(6)), "logits")
    return net.case


def encoder():
    net = Net("encoder_with_mask", 18, 8)
    ids = net.input("input_ids", net.random.integers(0, 40, (2, 6)), ["batch", "length"])
    allowed = net.input("attention_mask", np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int64), ["batch", "length"])
    places = net.op("Range", net.const(0, np.int64), net.op("Squeeze", net.dimension(ids, 1), net.ints(0)),
                    net.const(1, np.int64))
    x = net.op("Add", net.op("Gather", net.weight(40, 16, low=-1, high=1), ids),
               net.op("Gather", net.weight(12, 16, low=-1, high=1), places))
    mask = net.op("Cast", net.op("Unsqueeze", allowed, net.ints(1, 2)), to=1)
    mask = net.op("Sub", net.const(1.0, np.float32), mask)
    mask = net.op("Where", net.op("Cast", mask, to=9), net.const(-1e4, np.float32), mask)
    x = net.layer_norm(x, 16)
    x = net.layer_norm(net.op("Add", net.self_attention(x, 16, 2, mask), x), 16)
    inner = net.linear(x, 16, 32)
    erf = net.op("Add", net.op("Erf", net.op("Div", inner, net.const(np.float32(np.sqrt(2))))), net.const(1.0, np.float32))
    inner = net.op("Mul", net.op("Mul", inner, erf), net.const(0.5, np.float32))
    x = net.layer_norm(net.op("Add", net.linear(inner, 32, 16), x), 16)
    pooled = net.op("Tanh", net.op("Gemm", net.op("Gather", x, net.const(0, np.int64), axis=1), net.weight(16, 16),
                                   net.weight(16), transB=1))
    net.output(x, "hidden")
    net.output(pooled, "pooled")
    return net.case


def mobile():
    net = Net("mobile_squeeze_excite", 22, 9)
    x = net.input("image", net.floats(1, 3, 12, 12), ["batch", 3, 12, 12])
    x = net.op("HardSwish", net.batch_norm(net.conv(x, 3, 8, stride=2, bias=False), 8))
    y = net.op("Clip", net.batch_norm(net.conv(x, 8, 8, groups=8, bias=False), 8), net.const(0, np.float32),
               net.const(6, np.float32))
    s = net.op("Relu", net.conv(net.op("GlobalAveragePool", y), 8, 4, size=1))
    s = net.op("HardSigmoid", net.conv(s, 4, 8, size=1), alpha=1 / 6)
    x = net.op("Add", net.batch_norm(net.conv(net.op("Mul", y, s), 8, 8, size=1, bias=False), 8), x)
    x = net.op("ReduceMean", x, net.ints(-1, -2), keepdims=1)
    net.output(net.op("Gemm", net.op("Flatten", x, axis=1), net.weight(4, 8), net.weight(4), transB=1), "logits")
    return net.case


def spatial_transformer():
    net = Net("spatial_transformer", 20, 10)
    x = net.input("image", net.floats(2, 2, 9, 9), ["batch", 2, 9, 9])
    y = net.op("Mish", net.conv(x, 2, 4, stride=2)) if net.case.opset >= 18 else x
    y = net.op("Flatten", net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]))
    theta = net.op("Add", net.op("Mul", net.op("Gemm", y, net.weight(6, 16), net.weight(6), transB=1),
                                 net.const(0.3, np.float32)), net.const([1, 0, 0, 0, 1, 0], np.float32))
    theta = net.op("Reshape", theta, net.ints(-1, 2, 3))
    grid = net.op("AffineGrid", theta, net.op("Concat", net.dimension(theta, 0), net.ints(2, 7, 7), axis=0), align_corners=0)
    net.output(net.op("GridSample", x, grid, mode="linear", padding_mode="zeros", align_corners=0), "warped")
    return net.case


def tabular():
    net = Net("tabular", 20, 11)
    numbers = net.input("numbers", net.floats(5, 6), ["batch", 6])
    kinds = net.input("kinds", net.random.integers(0, 4, (5, 3)), ["batch", 3])
    parts = net.op("Split", kinds, outputs=3, axis=1, num_outputs=3)
    made = [net.op("Squeeze", net.op("Gather", net.weight(4, 3, low=-1, high=1), part), net.ints(1)) for part in parts]
    x = net.op("Concat", net.batch_norm(numbers, 6), *made, axis=1)
    for into, out in ((15, 16), (16, 8)):
        x = net.op("Dropout", net.op("Relu", net.batch_norm(net.op("Gemm", x, net.weight(out, into), net.weight(out), transB=1),
                                                            out)), net.const(0.2, np.float32))
    norm = net.op("Clip", net.op("ReduceL2", x, net.ints(1), keepdims=1), net.const(1e-12, np.float32))
    x = net.op("Div", x, net.op("Expand", norm, net.op("Shape", x)))
    logits = net.op("Gemm", x, net.weight(4, 8), net.weight(4), transB=1)
    best, place = net.op("TopK", net.op("Softmax", logits, axis=1), net.ints(2), outputs=2, axis=1)
    net.output(best, "probabilities")
    net.output(place, "classes")
    net.output(net.op("ReduceMax", net.op("Greater", logits, net.const(0, np.float32)), net.ints(1), keepdims=0), "any")
    return net.case


def speech():
    net = Net("speech", 22, 12)
    x = net.input("features", net.floats(1, 5, 20), ["batch", 5, "frames"])
    x = net.op("Pad", x, net.ints(2, 2), "", net.ints(2), mode="reflect")
    x = net.op("Mish", net.conv(x, 5, 8, size=5, stride=2, dims=1))
    x = net.layer_norm(net.op("Transpose", x, perm=[0, 2, 1]), 8)
    x = net.op("Add", x, net.op("Transpose", net.op("Mish", net.conv(net.op("Transpose", x, perm=[0, 2, 1]), 8, 8, groups=8,
                                                                     dims=1)), perm=[0, 2, 1]))
    made = net.op("GRU", net.op("Transpose", x, perm=[1, 0, 2]), net.weight(1, 18, 8, low=-0.3, high=0.3),
                  net.weight(1, 18, 6, low=-0.3, high=0.3), net.weight(1, 36, low=-0.3, high=0.3), outputs=2, hidden_size=6,
                  linear_before_reset=1)
    y = net.op("Transpose", net.op("Squeeze", made[0], net.ints(1)), perm=[1, 0, 2])
    net.output(net.op("LogSoftmax", net.linear(y, 6, 7), axis=-1), "log_probabilities")
    net.output(net.op("ArgMax", y, axis=-1, keepdims=0), "best")
    return net.case


def window_attention():
    net = Net("window_attention", 19, 13)
    x = net.input("map", net.floats(1, 7, 7, 8))
    x = net.op("Pad", x, net.ints(0, 0, 1, 1), net.const(0, np.float32), net.ints(1, 2))
    for axis in (1, 2):  # a roll, as torch.roll is exported
        x = net.op("Concat", net.op("Slice", x, net.ints(2), net.ints(2 ** 62), net.ints(axis)),
                   net.op("Slice", x, net.ints(0), net.ints(2), net.ints(axis)), axis=axis)
    rows = net.op("Transpose", net.op("Reshape", x, net.ints(1, 2, 4, 2, 4, 8)), perm=[0, 1, 3, 2, 4, 5])
    rows = net.op("Reshape", rows, net.ints(4, 16, 8))
    bias = net.op("Unsqueeze", net.op("Transpose", net.op("Reshape", net.op("Gather", net.weight(9, 2, low=-1, high=1), net.const(
        net.random.integers(0, 9, 256), np.int64)), net.ints(16, 16, 2)), perm=[2, 0, 1]), net.ints(0))
    y = net.op("Add", rows, net.self_attention(net.layer_norm(rows, 8), 8, 2, bias))
    y = net.op("Reshape", net.op("Transpose", net.op("Reshape", y, net.ints(1, 2, 2, 4, 4, 8)), perm=[0, 1, 3, 2, 4, 5]),
               net.ints(1, 8, 8, 8))
    net.output(net.op("Slice", y, net.ints(0, 0), net.ints(7, 7), net.ints(1, 2)), "out")
    return net.case


def cached_by_scatter():
    net = Net("cache_by_scatter", 18, 14)
    x = net.input("hidden", net.floats(1, 2, 16))
    place = net.input("cache_position", np.array([3, 4], np.int64))
    cache = net.input("cache", net.floats(6, 16))
    kept = net.op("ScatterND", cache, net.op("Unsqueeze", place, net.ints(1)),
                  net.op("Squeeze", net.linear(x, 16, 16), net.ints(0)))
    scores = net.op("MatMul", net.op("Squeeze", x, net.ints(0)), net.op("Transpose", kept, perm=[1, 0]))
    seen = net.op("LessOrEqual", net.op("Range", net.const(0, np.int64), net.const(6, np.int64), net.const(1, np.int64)),
                  net.op("Unsqueeze", place, net.ints(1)))
    scores = net.op("Where", seen, scores, net.const(np.finfo(np.float32).min, np.float32))
    net.output(net.op("MatMul", net.op("Softmax", scores, axis=-1), kept), "attended")
    net.output(kept, "cache_now")
    return net.case


def half_precision():
    net = Net("half_precision", 22, 15)
    x = net.op("Cast", net.input("image", net.floats(1, 3, 8, 8), ["batch", 3, 8, 8]), to=10)

    def half(*shape):
        return net.const(net.case.constants.pop(net.weight(*shape)), np.float16)

    x = net.op("Relu", net.op("Conv", x, half(8, 3, 3, 3), half(8), pads=[1, 1, 1, 1]))
    x = net.op("Relu", net.op("Add", net.op("Conv", x, half(8, 8, 3, 3), pads=[1, 1, 1, 1]), x))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.output(net.op("Gemm", x, half(4, 8), half(4), transB=1), "logits")
    return net.case


def upscaler():
    net = Net("upscaler", 19, 16)
    x = net.input("image", net.floats(1, 1, 6, 6), [1, 1, "height", "width"])
    y = net.op("Pad", x, net.ints(1, 1, 1, 1), "", net.ints(2, 3), mode="wrap")
    y = net.op("PRelu", net.op("Conv", y, net.weight(8, 1, 3, 3), net.weight(8)), net.weight(8, 1, 1))
    y = net.op("DepthToSpace", net.conv(y, 8, 4), blocksize=2, mode="CRD")
    base = net.op("Resize", x, "", net.const([1, 1, 2, 2], np.float32), mode="cubic", cubic_coeff_a=-0.75,
                  coordinate_transformation_mode="half_pixel")
    net.output(net.op("Add", y, base), "larger")
    return net.case


def bits():
    net = Net("hashed_features", 18, 17)
    ids = net.input("ids", net.random.integers(0, 2 ** 20, (3, 4)))
    mixed = net.op("BitwiseXor", ids, net.const(0x5bd1, np.int64))
    row = net.op("BitwiseAnd", mixed, net.const(63, np.int64))
    x = net.op("ReduceSum", net.op("Gather", net.weight(64, 8, low=-1, high=1), row), net.ints(1), keepdims=0)
    table = net.op("ScatterElements", net.const(np.zeros((3, 8)), np.float32),
                   net.const(net.random.integers(0, 8, (3, 8)), np.int64), x, axis=1, reduction="max")
    net.output(net.linear(table, 8, 2), "scores")
    return net.case


def wide():
    net = Net("double_precision", 18, 18)
    x = net.input("state", net.random.uniform(-1, 1, (4, 3)), ["batch", 3])
    for into, out in ((3, 5), (5, 2)):
        x = net.op("Tanh", net.op("Gemm", x, net.const(net.random.uniform(-1, 1, (out, into))),
                                  net.const(net.random.uniform(-1, 1, out)), transB=1))
    net.output(net.op("MatMul", x, net.const(net.random.uniform(-1, 1, (2, 2)))), "next")
    return net.case


def all_networks():
    return [cnn(), vision_transformer(), decoder(4, 5), decoder(1, 9), unet(18), unet(21), unet(23), detector(),
            recurrent(18, "LSTM", 4), recurrent(22, "LSTM", 4), recurrent(22, "GRU", 3), quantised(), encoder(), mobile(),
            spatial_transformer(), tabular(), speech(), window_attention(), cached_by_scatter(), half_precision(), upscaler(),
            bits(), wide()]
