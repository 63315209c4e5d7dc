"""Exports of vision models, each in the idioms of the exporter that its function names."""
import numpy as np

from export_speech_text import attention, erf_gelu, layer_norm
from net import Net


def clip():
    """Two towers and their similarities: the end of a text is where its largest token stands."""
    net = Net("clip_dual_tower", 17, 620)
    width, heads = 16, 2
    ids = net.input("input_ids", np.array([[1, 7, 3, 39, 0, 0], [1, 5, 9, 4, 39, 0], [1, 2, 39, 0, 0, 0]], np.int64), ["texts", "length"])
    image = net.input("pixel_values", net.floats(2, 3, 12, 12), ["images", 3, 12, 12])

    def block(x, mask=None):
        normal = layer_norm(net, x, width)
        x = net.op("Add", x, net.linear(attention(net, *(net.linear(normal, width, width) for _ in range(3)), width, heads, mask),
                                        width, width))
        up = net.linear(layer_norm(net, x, width), width, 32)
        up = net.op("Mul", up, net.op("Sigmoid", net.op("Mul", net.const(1.702, np.float32), up)))
        return net.op("Add", x, net.linear(up, 32, width))

    def unit(x):
        return net.op("Div", x, net.op("ReduceL2", x, axes=[-1], keepdims=1))

    length = net.dimension(ids, 1)
    x = net.op("Add", net.op("Gather", net.weight(40, width, low=-1, high=1), ids),
               net.op("Slice", net.weight(8, width, low=-1, high=1), net.ints(0), length, net.ints(0)))
    square = net.op("Concat", length, length, axis=0)
    mask = net.op("Trilu", net.op("Expand", net.const(np.finfo(np.float32).min, np.float32), square), net.const(1, np.int64), upper=1)
    x = layer_norm(net, block(x, net.op("Unsqueeze", mask, net.ints(0, 1))), width)
    ends = net.op("ArgMax", net.op("Cast", ids, to=6), axis=-1, keepdims=0)
    rows = net.op("Range", net.const(0, np.int64), net.op("Squeeze", net.dimension(ids, 0), net.ints(0)), net.const(1, np.int64))
    chosen = net.op("Concat", net.op("Unsqueeze", rows, net.ints(1)), net.op("Unsqueeze", ends, net.ints(1)), axis=1)
    texts = unit(net.op("MatMul", net.op("GatherND", x, chosen), net.weight(width, 8, low=-0.3, high=0.3)))
    y = net.op("Conv", image, net.weight(width, 3, 4, 4), kernel_shape=[4, 4], strides=[4, 4])
    y = net.op("Transpose", net.op("Reshape", y, net.ints(0, width, -1)), perm=[0, 2, 1])
    first = net.op("Expand", net.weight(1, 1, width), net.op("Concat", net.dimension(y, 0), net.ints(1, width), axis=0))
    y = block(net.op("Add", net.op("Concat", first, y, axis=1), net.weight(10, width)))
    pooled = layer_norm(net, net.op("Gather", y, net.const(0, np.int64), axis=1), width)
    images = unit(net.op("MatMul", pooled, net.weight(width, 8, low=-0.3, high=0.3)))
    scores = net.op("Mul", net.op("MatMul", texts, net.op("Transpose", images, perm=[1, 0])), net.op("Exp", net.const(2.6592, np.float32)))
    net.output(net.op("Transpose", scores, perm=[1, 0]), "logits_per_image")
    net.output(texts, "text_embeds")
    net.output(images, "image_embeds")
    return net.case


def swin():
    """Shifted windows whose mask the graph computes by ScatterND, and the merging of patches."""
    net = Net("swin_shifted", 17, 621)
    width, heads, window = 8, 2, 4
    x = net.input("tokens", net.floats(2, 64, width), ["batch", 64, width])
    normal = net.op("Reshape", layer_norm(net, x, width), net.ints(-1, 8, 8, width))

    def rolled(y, shift):
        for axis in (1, 2):
            y = net.op("Concat", net.op("Slice", y, net.ints(shift), net.ints(2 ** 63 - 1), net.ints(axis), net.ints(1)),
                       net.op("Slice", y, net.ints(0), net.ints(shift), net.ints(axis), net.ints(1)), axis=axis)
        return y

    def windows(y, channels):
        y = net.op("Reshape", y, net.ints(-1, 2, window, 2, window, channels))
        return net.op("Reshape", net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.ints(-1, window * window, channels))

    rows = windows(rolled(normal, 2), width)
    # img_mask[:, rows, columns, :] = count, as nine assignments are exported.
    mask = net.op("ConstantOfShape", net.ints(1, 8, 8, 1))
    parts = [(0, 4), (4, 6), (6, 8)]
    for count, ((top, bottom), (left, right)) in enumerate((a, b) for a in parts for b in parts):
        places = np.array([[[0, i, j, 0] for j in range(left, right)] for i in range(top, bottom)], np.int64)
        update = net.op("Expand", net.const(count, np.float32), net.ints(*places.shape[:2]))
        mask = net.op("ScatterND", mask, net.const(places), update)
    mask = net.op("Reshape", windows(mask, 1), net.ints(-1, window * window))
    apart = net.op("Sub", net.op("Unsqueeze", mask, net.ints(1)), net.op("Unsqueeze", mask, net.ints(2)))
    other = net.op("Not", net.op("Equal", apart, net.const(0, np.float32)))
    apart = net.op("Where", other, net.const(-100, np.float32), apart)
    q, k, v = (net.op("Gather", net.op("Transpose", net.op("Reshape", net.linear(rows, width, 3 * width), net.ints(
        -1, 16, 3, heads, width // heads)), perm=[2, 0, 3, 1, 4]), net.const(i, np.int64), axis=0) for i in range(3))
    scores = net.op("MatMul", net.op("Mul", q, net.const(np.float32(0.5))), net.op("Transpose", k, perm=[0, 1, 3, 2]))
    index = np.array([[(a // 4 - b // 4 + 3) * 7 + a % 4 - b % 4 + 3 for b in range(16)] for a in range(16)], np.int64)
    bias = net.op("Reshape", net.op("Gather", net.weight(49, heads, low=-1, high=1), net.const(index.ravel())), net.ints(16, 16, heads))
    scores = net.op("Add", scores, net.op("Unsqueeze", net.op("Transpose", bias, perm=[2, 0, 1]), net.ints(0)))
    scores = net.op("Add", net.op("Reshape", scores, net.ints(-1, 4, heads, 16, 16)), net.op("Unsqueeze", net.op("Unsqueeze", apart, net.ints(
        1)), net.ints(0)))
    weights = net.op("Softmax", net.op("Reshape", scores, net.ints(-1, heads, 16, 16)), axis=-1)
    y = net.op("Reshape", net.op("Transpose", net.op("MatMul", weights, v), perm=[0, 2, 1, 3]), net.ints(-1, 16, width))
    y = net.op("Reshape", net.linear(y, width, width), net.ints(-1, 2, 2, window, window, width))
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.ints(-1, 8, 8, width))
    x = net.op("Add", x, net.op("Reshape", rolled(y, -2), net.ints(-1, 64, width)))
    x = net.op("Add", x, net.linear(erf_gelu(net, net.linear(layer_norm(net, x, width), width, 16)), 16, width))
    x = net.op("Reshape", x, net.ints(-1, 8, 8, width))
    corners = []
    for top, left in ((0, 0), (1, 0), (0, 1), (1, 1)):
        y = net.op("Slice", x, net.ints(top), net.ints(2 ** 63 - 1), net.ints(1), net.ints(2))
        corners.append(net.op("Slice", y, net.ints(left), net.ints(2 ** 63 - 1), net.ints(2), net.ints(2)))
    x = net.op("Reshape", net.op("Concat", *corners, axis=-1), net.ints(-1, 16, 4 * width))
    net.output(net.linear(layer_norm(net, x, 4 * width), 4 * width, 2 * width, False), "merged")
    return net.case


def convnext():
    """By the dynamo exporter: depthwise convolutions of 7 x 7, normalisation over channels last, scales of layers."""
    net = Net("convnext", 20, 622)
    x = net.input("image", net.floats(1, 3, 16, 16), ["batch", 3, 16, 16])

    def first_norm(x, width):  # channels first, decomposed
        centred = net.op("Sub", x, net.op("ReduceMean", x, net.ints(1), keepdims=1))
        variance = net.op("ReduceMean", net.op("Pow", centred, net.const(2, np.float32)), net.ints(1), keepdims=1)
        scaled = net.op("Div", centred, net.op("Sqrt", net.op("Add", variance, net.const(1e-6, np.float32))))
        return net.op("Add", net.op("Mul", net.weight(width, 1, 1, low=0.5, high=1.5), scaled), net.weight(width, 1, 1))

    x = first_norm(net.op("Conv", x, net.weight(8, 3, 4, 4), net.weight(8), strides=[4, 4], kernel_shape=[4, 4], pads=[0] * 4), 8)
    for width in (8, 12):
        if width == 12:
            x = net.op("Conv", first_norm(x, 8), net.weight(12, 8, 2, 2), net.weight(12), strides=[2, 2], kernel_shape=[2, 2], auto_pad="NOTSET")
        y = net.op("Transpose", net.conv(x, width, width, size=7, groups=width), perm=[0, 2, 3, 1])
        y = net.op("Gelu", net.linear(net.layer_norm(y, width), width, 3 * width), approximate="none")
        y = net.op("Mul", net.linear(y, 3 * width, width), net.weight(width))
        x = net.op("Add", x, net.op("Transpose", y, perm=[0, 3, 1, 2]))
    pooled = net.layer_norm(net.op("Flatten", net.op("GlobalAveragePool", x), axis=1), 12)
    net.output(net.op("Gemm", pooled, net.weight(5, 12), net.weight(5), alpha=1.0, beta=1.0, transB=1), "logits")
    return net.case


def efficient_net():
    """By tf2onnx: channels last outside, paddings that differ between begin and end, pooling by means, gates of channels."""
    net = Net("efficientnet_tf2onnx", 15, 623)
    x = net.input("input_1:0", net.floats(1, 15, 15, 3, low=0, high=255), ["unk__100", 15, 15, 3])
    x = net.op("Sub", net.op("Mul", x, net.const(1 / 127.5, np.float32)), net.const(1, np.float32))
    x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    x = net.silu(net.op("Conv", x, net.weight(8, 3, 3, 3), net.weight(8), strides=[2, 2], kernel_shape=[3, 3], auto_pad="SAME_UPPER"))
    y = net.silu(net.op("Conv", x, net.weight(16, 8, 3, 3), net.weight(16), strides=[1, 1], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    x = net.op("Add", net.op("Conv", y, net.weight(8, 16, 1, 1), net.weight(8), kernel_shape=[1, 1]), x)
    y = net.silu(net.op("Conv", x, net.weight(16, 8, 1, 1), net.weight(16), kernel_shape=[1, 1]))
    y = net.silu(net.op("Conv", net.op("Pad", y, net.ints(0, 0, 0, 0, 0, 0, 1, 1)), net.weight(16, 1, 3, 3), net.weight(16), group=16,
                        strides=[2, 2], kernel_shape=[3, 3], auto_pad="VALID"))
    s = net.op("ReduceMean", y, axes=[2, 3], keepdims=1)
    s = net.silu(net.op("Conv", s, net.weight(4, 16, 1, 1), net.weight(4), kernel_shape=[1, 1]))
    s = net.op("Sigmoid", net.op("Conv", s, net.weight(16, 4, 1, 1), net.weight(16), kernel_shape=[1, 1]))
    y = net.op("Conv", net.op("Mul", s, y), net.weight(8, 16, 1, 1), net.weight(8), kernel_shape=[1, 1])
    y = net.op("Squeeze", net.op("ReduceMean", y, axes=[2, 3], keepdims=1), net.ints(2, 3))
    y = net.op("Add", net.op("MatMul", y, net.weight(8, 6, low=-1, high=1)), net.weight(6))
    net.output(net.op("Softmax", y, axis=1), "predictions")
    return net.case


def detr():
    """Positions by running sums of a mask, queries that all images share, and boxes from their centres."""
    net = Net("detr_head", 17, 624)
    width, heads, queries = 16, 2, 5
    x = net.input("features", net.floats(2, 8, 3, 4), ["batch", 8, "height", "width"])
    mask = net.input("mask", np.array([[[1] * 4] * 3, [[1, 1, 1, 0]] * 3], bool), ["batch", "height", "width"])
    places = []
    for axis in (1, 2):
        sums = net.op("CumSum", net.op("Cast", mask, to=1), net.const(axis, np.int64))
        last = net.op("Slice", sums, net.ints(-1), net.ints(2 ** 63 - 1), net.ints(axis))
        sums = net.op("Mul", net.op("Div", sums, net.op("Add", last, net.const(1e-6, np.float32))), net.const(2 * np.pi, np.float32))
        turns = net.op("Div", net.op("Unsqueeze", sums, net.ints(3)), net.const([1, 1, 21.5, 21.5, 464, 464, 10000, 10000], np.float32))
        even, odd = (net.op("Slice", turns, net.ints(i), net.ints(2 ** 63 - 1), net.ints(3), net.ints(2)) for i in (0, 1))
        both = net.op("Concat", net.op("Unsqueeze", net.op("Sin", even), net.ints(4)), net.op("Unsqueeze", net.op("Cos", odd), net.ints(4)), axis=4)
        shape = net.op("Concat", net.op("Slice", net.op("Shape", both), net.ints(0), net.ints(3), net.ints(0)), net.ints(-1), axis=0)
        places.append(net.op("Reshape", both, shape))
    places = net.op("Transpose", net.op("Concat", *places, axis=3), perm=[0, 3, 1, 2])

    def flat(y):
        shape = net.op("Concat", net.op("Slice", net.op("Shape", y), net.ints(0), net.ints(2), net.ints(0)), net.ints(-1), axis=0)
        return net.op("Transpose", net.op("Reshape", y, shape), perm=[0, 2, 1])

    memory, places = flat(net.conv(x, 8, width, size=1)), flat(places)
    shape = net.op("Concat", net.dimension(mask, 0), net.ints(1, 1, -1), axis=0)
    hidden = net.op("Reshape", net.op("Not", mask), shape)
    bias = net.op("Where", hidden, net.const(-np.inf, np.float32), net.const(0, np.float32))
    asked = net.op("Tile", net.op("Unsqueeze", net.weight(queries, width, low=-1, high=1), net.ints(0)),
                   net.op("Concat", net.dimension(x, 0), net.ints(1, 1), axis=0))
    y = net.op("ConstantOfShape", net.op("Shape", asked))
    q = net.op("Add", y, asked)
    y = layer_norm(net, net.op("Add", y, attention(net, net.linear(q, width, width), net.linear(q, width, width), net.linear(y, width, width),
                                                   width, heads)), width)
    q, k = net.op("Add", y, asked), net.op("Add", memory, places)
    y = layer_norm(net, net.op("Add", y, attention(net, net.linear(q, width, width), net.linear(k, width, width),
                                                   net.linear(memory, width, width), width, heads, bias)), width)
    boxes = net.op("Sigmoid", net.linear(net.op("Relu", net.linear(y, width, width)), width, 4))
    cx, cy, w, h = (net.op("Gather", boxes, net.const(i, np.int64), axis=-1) for i in range(4))
    half = net.const(0.5, np.float32)
    corners = [net.op(op, c, net.op("Mul", s, half)) for op in ("Sub", "Add") for c, s in ((cx, w), (cy, h))]
    net.output(net.linear(y, width, 4), "logits")
    net.output(net.op("Concat", *(net.op("Unsqueeze", c, net.ints(-1)) for c in corners), axis=-1), "boxes")
    return net.case


def ssd():
    """The end of a torchvision detector: anchors, what is sure enough of each class, the best of it, and one suppression for all
    classes, whose boxes are moved apart."""
    net = Net("ssd_postprocess", 17, 625)
    count, classes = 24, 3
    deltas = net.input("deltas", net.floats(count, 4), ["anchors", 4])
    logits = net.input("logits", net.floats(count, classes + 1, low=-2, high=2), ["anchors", classes + 1])
    corner = net.random.uniform(0, 60, (count, 2))
    anchors = net.const(np.concatenate([corner, corner + net.random.uniform(8, 30, (count, 2))], 1), np.float32)

    def column(x, i):
        return net.op("Slice", x, net.ints(i), net.ints(i + 1), net.ints(1), net.ints(1))

    half = net.const(0.5, np.float32)
    sides = []
    for i in range(2):
        size = net.op("Sub", column(anchors, i + 2), column(anchors, i))
        centre = net.op("Add", column(anchors, i), net.op("Mul", half, size))
        centre = net.op("Add", net.op("Mul", net.op("Div", column(deltas, i), net.const(10, np.float32)), size), centre)
        grown = net.op("Min", net.op("Div", column(deltas, i + 2), net.const(5, np.float32)), net.const(4.135, np.float32))
        reach = net.op("Mul", half, net.op("Mul", net.op("Exp", grown), size))
        sides.append((net.op("Sub", centre, reach), net.op("Add", centre, reach)))
    boxes = net.op("Concat", sides[0][0], sides[1][0], sides[0][1], sides[1][1], axis=1)
    boxes = net.op("Clip", boxes, net.const(0, np.float32), net.const(80, np.float32))
    scores = net.op("Softmax", logits, axis=-1)
    kept = [[], [], []]
    for label in range(1, classes + 1):
        score = net.op("Gather", scores, net.const(label, np.int64), axis=1)
        sure = net.op("Squeeze", net.op("Transpose", net.op("NonZero", net.op("Greater", score, net.const(0.25, np.float32))), perm=[1, 0]),
                      net.ints(1))
        score, chosen = net.op("Gather", score, sure, axis=0), net.op("Gather", boxes, sure, axis=0)
        most = net.op("ReduceMin", net.op("Concat", net.op("Shape", score), net.ints(6), axis=0), axes=[0], keepdims=1)
        score, best = net.op("TopK", score, most, outputs=2, axis=0, largest=1, sorted=1)
        kept[0].append(net.op("Gather", chosen, best, axis=0))
        kept[1].append(score)
        kept[2].append(net.op("Expand", net.const(label, np.int64), net.op("Shape", score)))
    boxes, score, labels = (net.op("Concat", *part, axis=0) for part in kept)
    apart = net.op("Mul", net.op("Cast", labels, to=1), net.op("Add", net.op("ReduceMax", boxes, keepdims=0), net.const(1, np.float32)))
    moved = net.op("Unsqueeze", net.op("Add", boxes, net.op("Unsqueeze", apart, net.ints(1))), net.ints(0))
    picked = net.op("NonMaxSuppression", moved, net.op("Unsqueeze", score, net.ints(0, 1)), net.ints(2 ** 62), net.const([0.3], np.float32))
    picked = net.op("Squeeze", net.op("Slice", picked, net.ints(2), net.ints(3), net.ints(1)), net.ints(1))
    picked = net.op("Slice", picked, net.ints(0), net.ints(8), net.ints(0), net.ints(1))
    for value, name in ((boxes, "boxes"), (score, "scores"), (labels, "labels")):
        net.output(net.op("Gather", value, picked, axis=0), name)
    return net.case


def yolo():
    """A head without anchors: distances as expected values of distributions, at two strides."""
    net = Net("yolo_distributions", 19, 626)
    x = net.input("images", net.floats(1, 3, 32, 32), ["batch", 3, "height", "width"])
    x = net.silu(net.conv(net.silu(net.conv(x, 3, 8, stride=2)), 8, 8, stride=2))
    first = net.silu(net.conv(x, 8, 12, stride=2))
    a, b = net.op("Split", first, net.ints(6, 6), outputs=2, axis=1)
    first = net.silu(net.conv(net.op("Concat", a, b, net.op("Add", b, net.silu(net.conv(b, 6, 6))), axis=1), 18, 12, size=1))
    y = net.silu(net.conv(first, 12, 12, size=1))
    pools = [y]
    for _ in range(3):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1], dilations=[1, 1], ceil_mode=0))
    second = net.silu(net.conv(net.op("Concat", *pools, axis=1), 48, 12, stride=2))
    rows, points, strides = [], [], []
    for level, stride in ((first, 8), (second, 16)):
        head = net.op("Concat", net.conv(level, 12, 16, size=1), net.conv(level, 12, 3, size=1), axis=1)
        rows.append(net.op("Reshape", head, net.op("Concat", net.dimension(head, 0), net.ints(19, -1), axis=0)))
        high, wide = (net.op("Squeeze", net.dimension(level, i), net.ints(0)) for i in (2, 3))
        steps = [net.op("Add", net.op("Cast", net.op("Range", net.const(0, np.int64), n, net.const(1, np.int64)), to=1), net.const(0.5, np.float32))
                 for n in (wide, high)]
        shape = net.op("Concat", net.dimension(level, 2), net.dimension(level, 3), axis=0)
        grid = [net.op("Expand", net.op("Unsqueeze", steps[0], net.ints(0)), shape), net.op("Expand", net.op("Unsqueeze", steps[1], net.ints(1)), shape)]
        grid = [net.op("Reshape", g, net.ints(1, -1)) for g in grid]
        points.append(net.op("Concat", *grid, axis=0))
        strides.append(net.op("Expand", net.const(stride, np.float32), net.op("Shape", grid[0])))
    rows, points, strides = net.op("Concat", *rows, axis=2), net.op("Concat", *points, axis=1), net.op("Concat", *strides, axis=1)
    boxes, scores = net.op("Split", rows, net.ints(16, 3), outputs=2, axis=1)
    bins = net.op("Transpose", net.op("Reshape", boxes, net.op("Concat", net.dimension(boxes, 0), net.ints(4, 4, -1), axis=0)), perm=[0, 2, 1, 3])
    reach = net.op("Conv", net.op("Softmax", bins, axis=1), net.const(np.arange(4).reshape(1, 4, 1, 1), np.float32), kernel_shape=[1, 1])
    reach = net.op("Reshape", reach, net.op("Concat", net.dimension(boxes, 0), net.ints(4, -1), axis=0))
    near, far = net.op("Split", reach, outputs=2, axis=1, num_outputs=2)
    low, high = net.op("Sub", points, near), net.op("Add", points, far)
    centre = net.op("Div", net.op("Add", low, high), net.const(2, np.float32))
    boxes = net.op("Mul", net.op("Concat", centre, net.op("Sub", high, low), axis=1), strides)
    net.output(net.op("Concat", boxes, net.op("Sigmoid", scores), axis=1), "output0")
    return net.case


def segmenter():
    """A net of skips, whose upsampling takes its sizes from the skip that it meets."""
    net = Net("unet_resize_to_skip", 19, 627)
    x = net.input("image", net.floats(1, 1, 13, 18), ["batch", 1, "height", "width"])

    def block(x, into, out):
        return net.op("Relu", net.batch_norm(net.conv(x, into, out, bias=False), out))

    first = block(x, 1, 6)
    second = block(net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), 6, 8)
    third = block(net.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), 8, 12)

    def to_size(x, skip, **how):
        ends = [net.op("Slice", net.op("Shape", y), net.ints(b), net.ints(e), net.ints(0)) for y, b, e in ((x, 0, 2), (skip, 2, 4))]
        return net.op("Resize", x, "", "", net.op("Concat", *ends, axis=0), **how)

    y = to_size(third, second, mode="linear", coordinate_transformation_mode="align_corners")
    y = block(net.op("Concat", second, y, axis=1), 20, 8)
    y = net.op("ConvTranspose", y, net.weight(8, 6, 2, 2), net.weight(6), kernel_shape=[2, 2], strides=[2, 2])
    wanted = net.op("Slice", net.op("Shape", first), net.ints(2), net.ints(4), net.ints(0))
    y = net.op("Slice", y, net.ints(0, 0), wanted, net.ints(2, 3), net.ints(1, 1))
    y = block(net.op("Concat", first, y, axis=1), 12, 6)
    y = to_size(net.conv(y, 6, 3, size=1), x, mode="cubic", coordinate_transformation_mode="pytorch_half_pixel", cubic_coeff_a=-0.75)
    net.output(net.op("ArgMax", y, axis=1, keepdims=0), "classes")
    net.output(net.op("Softmax", y, axis=1), "probabilities")
    return net.case


def all_exports():
    return [clip(), swin(), convnext(), efficient_net(), detr(), ssd(), yolo(), segmenter()]
