"""Networks of the families that people serve, with seeded random weights: what bench/networks.py measures beside ONNX Runtime.

Those of examples/make_models.py, further ones that are made here, and the classic networks of ../shared/models. Batches are
fixed, so that both engines know every shape beforehand.
"""
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
from make_models import FLOAT, INT64, Net, bert, detector, gelu, mlp, resnet, vit  # noqa: E402

CLASSIC = ROOT.parent / "shared" / "models"


def convolution(net, x, c_in, c_out, kernel, stride=1, groups=1, act=None):
    """Convolution, batch norm and an activation: "Relu", "Relu6", "Swish" or none."""
    weight = net.he(c_out, c_in // groups, kernel, kernel, fan_in=c_in // groups * kernel * kernel)
    x = net.op("Conv", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
    x = net.batch_norm(x, c_out)
    if act == "Relu6":
        return net.op("Clip", x, net.constant(0.0), net.constant(6.0))
    if act == "Swish":
        return net.op("Mul", x, net.op("Sigmoid", x))
    return net.op(act, x) if act else x


def squeeze_excite(net, x, channels, inner, act):
    """Each channel is weighed by what a small network says of all channels' means."""
    s = net.op("GlobalAveragePool", x)
    s = net.conv(s, channels, inner, 1, bias=True)
    s = net.op("Mul", s, net.op("Sigmoid", s)) if act == "Swish" else net.op(act, s)
    return net.op("Mul", x, net.op("Sigmoid", net.conv(s, inner, channels, 1, bias=True)))


def classify(net, x, channels):
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight, bias = net.he(1000, channels, fan_in=channels, gain=1.0), net.constant(net.random.normal(0, 0.02, 1000))
    net.op("Gemm", x, weight, bias, transB=1, name="logits")
    net.output("logits", FLOAT, [net.batch, 1000])


def inverted_residuals(net, x, c_in, stages, act, excites):
    """MobileNetV2's blocks, with EfficientNet's squeeze and excitation if asked: (expansion, channels, blocks, stride, kernel)."""
    for expansion, c_out, blocks, stride, kernel in stages:
        for block in range(blocks):
            step, wide, branch = stride if block == 0 else 1, c_in * expansion, x
            if expansion > 1:
                branch = convolution(net, branch, c_in, wide, 1, act=act)
            branch = convolution(net, branch, wide, wide, kernel, step, wide, act)
            if excites:
                branch = squeeze_excite(net, branch, wide, max(1, c_in // 4), act)
            branch = convolution(net, branch, wide, c_out, 1)
            x = net.op("Add", x, branch) if step == 1 and c_in == c_out else branch
            c_in = c_out
    return x, c_in


def inverted_residual_network(net, stages, act, excites):
    x = convolution(net, net.input("data", FLOAT, 3, 224, 224), 3, 32, 3, 2, act=act)
    x, channels = inverted_residuals(net, x, 32, stages, act, excites)
    classify(net, convolution(net, x, channels, 1280, 1, act=act), 1280)


def mobilenet_v2(net):
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
              (6, 320, 1, 1, 3)]
    inverted_residual_network(net, stages, "Relu6", False)


def efficientnet_b0(net):
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
              (6, 320, 1, 1, 3)]
    inverted_residual_network(net, stages, "Swish", True)


def regnet_y_400mf(net):
    """Convolutions of eight channels a group."""
    x, c_in = convolution(net, net.input("data", FLOAT, 3, 224, 224), 3, 32, 3, 2, act="Relu"), 32
    for c_out, blocks in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for block in range(blocks):
            stride = 2 if block == 0 else 1
            branch = convolution(net, x, c_in, c_out, 1, act="Relu")
            branch = convolution(net, branch, c_out, c_out, 3, stride, c_out // 8, "Relu")
            branch = convolution(net, squeeze_excite(net, branch, c_out, c_in // 4, "Relu"), c_out, c_out, 1)
            if block == 0:
                x = convolution(net, x, c_in, c_out, 1, stride)
            x, c_in = net.op("Relu", net.op("Add", x, branch)), c_out
    classify(net, x, 440)


def unet(net):
    x = net.input("image", FLOAT, 3, 128, 128)
    channels, kept = 3, []
    for width in (32, 64, 128):
        for _ in range(2):
            x, channels = convolution(net, x, channels, width, 3, act="Relu"), width
        kept.append((x, width))
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, channels = convolution(net, x, channels, 256, 3, act="Relu"), 256
    for skip, width in reversed(kept):
        up = net.op("ConvTranspose", x, net.he(channels, width, 2, 2, fan_in=4 * channels), kernel_shape=[2, 2], strides=[2, 2])
        x = convolution(net, net.op("Concat", up, skip, axis=1), 2 * width, width, 3, act="Relu")
        x, channels = convolution(net, x, width, width, 3, act="Relu"), width
    net.op("Sigmoid", net.conv(x, channels, 1, 1, bias=True), name="mask")
    net.output("mask", FLOAT, [net.batch, 1, 128, 128])


def upscaler(net):
    """Sub-pixel super-resolution by three."""
    x = net.op("Relu", net.conv(net.input("image", FLOAT, 1, 96, 96), 1, 64, 5, bias=True))
    x = net.op("Relu", net.conv(x, 64, 64, 3, bias=True))
    x = net.op("Relu", net.conv(x, 64, 32, 3, bias=True))
    net.op("DepthToSpace", net.conv(x, 32, 9, 3, bias=True), blocksize=3, mode="CRD", name="large")
    net.output("large", FLOAT, [net.batch, 1, 288, 288])


def recurrent(net, operator, gates):
    """Two layers over 64 steps of 128 numbers, 256 wide."""
    length, width, inner = 64, 128, 256
    x = net.op("Transpose", net.input("x", FLOAT, length, width), perm=[1, 0, 2])
    for _ in range(2):
        w, r = net.he(1, gates * inner, width, fan_in=width, gain=1.0), net.he(1, gates * inner, inner, fan_in=inner, gain=1.0)
        b = net.constant(net.random.normal(0, 0.05, (1, 2 * gates * inner)))
        y = net.op(operator, x, w, r, b, outputs=2, hidden_size=inner)[0]
        x, width = net.op("Squeeze", y, net.ints(1)), inner
    net.op("Transpose", x, perm=[1, 0, 2], name="y")
    net.output("y", FLOAT, [net.batch, length, inner])


def text_cnn(net):
    ids = net.input("ids", INT64, 64)
    table = net.constant(net.random.standard_normal((5000, 128), dtype=np.float32))
    x = net.op("Transpose", net.op("Gather", table, ids, axis=0), perm=[0, 2, 1])
    found = []
    for kernel in (3, 4, 5):
        y = net.op("Relu", net.op("Conv", x, net.he(100, 128, kernel, fan_in=128 * kernel), kernel_shape=[kernel]))
        found.append(net.op("GlobalMaxPool", y))
    x = net.op("Flatten", net.op("Concat", *found, axis=1), axis=1)
    net.op("Softmax", net.linear(x, 300, 5), axis=-1, name="y")
    net.output("y", FLOAT, [net.batch, 5])


def decoder(net, layers=6, hidden=768, heads=12, past=128):
    """One step of a DistilGPT-like decoder, with the keys and values of the tokens before."""
    width = hidden // heads
    x = net.input("x", FLOAT, 1, hidden)
    for layer in range(layers):
        y = net.layer_norm(x, hidden)
        parts = net.op("Split", net.linear(y, hidden, 3 * hidden), net.ints(hidden, hidden, hidden), outputs=3, axis=2)
        query, key, value = (net.op("Transpose", net.op("Reshape", part, net.ints(0, 0, heads, width)), perm=[0, 2, 1, 3])
                             for part in parts)
        key = net.op("Concat", net.input(f"keys_{layer}", FLOAT, heads, past, width), key, axis=2)
        value = net.op("Concat", net.input(f"values_{layer}", FLOAT, heads, past, width), value, axis=2)
        scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 1, 3, 2]))
        weights = net.op("Softmax", net.op("Mul", scores, net.constant(width ** -0.5)), axis=-1)
        merged = net.op("Reshape", net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3]), net.ints(0, 0, hidden))
        x = net.op("Add", x, net.linear(merged, hidden, hidden))
        inner = gelu(net, net.linear(net.layer_norm(x, hidden), hidden, 4 * hidden))
        x = net.op("Add", x, net.linear(inner, 4 * hidden, hidden))
    net.op("MatMul", net.layer_norm(x, hidden), net.he(hidden, 8000, fan_in=hidden, gain=1.0), name="logits")
    net.output("logits", FLOAT, [net.batch, 1, 8000])


NETWORKS = {
    "resnet18": lambda net: resnet(net, (2, 2, 2, 2), False, 224),
    "resnet50": lambda net: resnet(net, (3, 4, 6, 3), True, 224),
    "mobilenet-v2": mobilenet_v2,
    "efficientnet-b0": efficientnet_b0,
    "regnet-y-400mf": regnet_y_400mf,
    "vit-tiny": lambda net: vit(net, 12, 192, 3, 224),
    "vit-base": lambda net: vit(net, 12, 768, 12, 224),
    "bert-tiny": lambda net: bert(net, 2, 128, 2, 30522, 128),
    "bert-base-32": lambda net: bert(net, 12, 768, 12, 30522, 32),
    "bert-base-128": lambda net: bert(net, 12, 768, 12, 30522, 128),
    "bert-base-384": lambda net: bert(net, 12, 768, 12, 30522, 384),
    "decoder": decoder,
    "unet": unet,
    "detector": lambda net: detector(net, 320),
    "upscaler": upscaler,
    "lstm": lambda net: recurrent(net, "LSTM", 4),
    "gru": lambda net: recurrent(net, "GRU", 3),
    "text-cnn": text_cnn,
    "mlp": mlp,
}
ONE_IMAGE = ("detector",)  # its batch is 1
CLASSIC_NETWORKS = ("densenet121", "inception_v1", "resnet50", "squeezenet", "vgg19")  # their batch is 1


def make(name, batch, folder):
    """The file of a network; nothing where it has no such batch."""
    if name.startswith("classic-"):
        return CLASSIC / f"light_{name.removeprefix('classic-')}.onnx" if batch == 1 else None
    if name in ONE_IMAGE and batch != 1:
        return None
    file = pathlib.Path(folder) / f"{name}-{batch}.onnx"
    if not file.exists():
        net = Net(name, 0, batch)
        NETWORKS[name](net)
        net.save(file)
    return file


def all_names():
    return [*NETWORKS, *(f"classic-{name}" for name in CLASSIC_NETWORKS if (CLASSIC / f"light_{name}.onnx").exists())]
