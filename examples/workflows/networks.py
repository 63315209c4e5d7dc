#!/usr/bin/python3
"""Makes the small networks that traffic.yaml, image.yaml and social.yaml call, with seeded random weights.

usage: networks.py --output DIR [--seed N]       writes NAME.onnx for each function that the workflows call

They are of the families of StreamBox's three workflows (a detector, ResNets, VGGs, a network for super-resolution, networks for
text), small enough for a test. What they say of a picture means nothing. Needs Debian's python3-onnx and python3-numpy.
"""
import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from make_models import FLOAT, INT64, Net, attention, gelu  # noqa: E402

import onnx  # noqa: E402

BOOL = onnx.TensorProto.BOOL
SIZE = 64    # pixels per side of a picture
CROP = 32    # pixels per side of what is cut out of it
WORDS = 16   # of a text
VOCABULARY = 500


def detector(net):
    """Cars and faces: for each of the two classes NonMaxSuppression, and what its boxes cut out of the picture."""
    x = image = net.input("image", FLOAT, 3, SIZE, SIZE)
    channels = 3
    for width in (16, 32, 48):
        x = net.op("LeakyRelu", net.batch_norm(net.conv(x, channels, width, 3, 2), width), alpha=0.1)
        channels = width
    cells = SIZE // 8
    flat = net.op("Reshape", net.conv(x, channels, 6, 1, bias=True), net.ints(1, 6, -1))
    flat = net.op("Transpose", flat, perm=[0, 2, 1])
    centre, extent, score = net.op("Split", flat, net.ints(2, 2, 2), outputs=3, axis=2)
    ys, xs = np.meshgrid(np.arange(cells), np.arange(cells), indexing="ij")
    grid = net.constant(np.stack([ys, xs], -1).reshape(1, -1, 2))
    centre = net.op("Div", net.op("Add", net.op("Sigmoid", centre), grid), net.constant(cells))
    half = net.op("Mul", net.op("Exp", net.op("Clip", extent, net.constant(-1.0), net.constant(1.0))), net.constant(1.0 / cells))
    boxes = net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)
    scores = net.op("Transpose", net.op("Sigmoid", score), perm=[0, 2, 1])
    by_class = net.op("Split", scores, net.ints(1, 1), outputs=2, axis=1)
    corners = net.op("Mul", net.op("Gather", net.op("Squeeze", boxes, net.ints(0)), net.ints(1, 0, 3, 2), axis=1),
                     net.constant(float(SIZE)))
    for name, limit, of_class in (("cars", 5, by_class[0]), ("faces", 3, by_class[1])):
        selected = net.op("NonMaxSuppression", boxes, of_class, net.ints(limit), net.constant([0.4]), net.constant([0.5]))
        box = net.op("Gather", selected, net.constant(2, np.int64), axis=1)
        picture = net.op("Gather", selected, net.constant(0, np.int64), axis=1)
        net.op("RoiAlign", image, net.op("Gather", corners, box, axis=0), picture, name=name, output_height=CROP,
               output_width=CROP, sampling_ratio=2, mode="avg", coordinate_transformation_mode="half_pixel")
        net.output(name, FLOAT, [f"found_{name}", 3, CROP, CROP])


def resnet(net, size, classes):
    """Three stages of one residual block."""
    x = net.op("Relu", net.batch_norm(net.conv(net.input("image", FLOAT, 3, size, size), 3, 16, 3), 16))
    channels = 16
    for width in (16, 32, 64):
        stride = 1 if width == channels else 2
        branch = net.op("Relu", net.batch_norm(net.conv(x, channels, width, 3, stride), width))
        branch = net.batch_norm(net.conv(branch, width, width, 3), width, 0.5)
        if stride != 1:
            x = net.batch_norm(net.conv(x, channels, width, 1, stride), width)
        x = net.op("Relu", net.op("Add", branch, x))
        channels = width
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return net.op("Softmax", net.linear(x, channels, classes), axis=-1)


def vgg(net, size, classes):
    """Three stages of two convolutions and a pool, and two dense layers."""
    x = net.input("image", FLOAT, 3, size, size)
    channels = 3
    for width in (8, 16, 32):
        for _ in range(2):
            x = net.op("Relu", net.conv(x, channels, width, 3, bias=True))
            channels = width
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    flat = channels * (size // 8) ** 2
    x = net.op("Relu", net.linear(net.op("Flatten", x, axis=1), flat, 64))
    return net.op("Softmax", net.linear(x, 64, classes), axis=-1)


def classes(family, size, count):
    def make(net):
        net.op("Identity", family(net, size, count), name="scores")
        net.output("scores", FLOAT, [net.batch, count])
    return make


def face_finder(net):
    """Whose face it is, and whether there is one: a BOOL that a workflow may use as a condition."""
    scores = net.op("Identity", resnet(net, SIZE, 8), name="scores")
    net.output("scores", FLOAT, [1, 8])
    best = net.op("ReduceMax", scores, axes=[0, 1], keepdims=0)
    net.op("Reshape", net.op("Greater", best, net.constant(0.2)), net.ints(1), name="found")
    net.output("found", BOOL, [1])


def super_resolution(net):
    """Twice the pixels, as ESPCN makes them: the details as channels, which DepthToSpace spreads."""
    image = net.input("image", FLOAT, 3, SIZE, SIZE)
    x = net.op("Tanh", net.conv(image, 3, 32, 5, bias=True))
    x = net.op("Tanh", net.conv(x, 32, 16, 3, bias=True))
    net.op("DepthToSpace", net.conv(x, 16, 12, 3, bias=True), name="large", blocksize=2)
    net.output("large", FLOAT, [net.batch, 3, 2 * SIZE, 2 * SIZE])


def enlarge(net):
    """Twice the pixels, each four times the same: what stands in for super-resolution."""
    image = net.input("image", FLOAT, 3, SIZE, SIZE)
    net.op("Resize", image, "", net.constant([1, 1, 2, 2]), name="large", mode="nearest", nearest_mode="floor",
           coordinate_transformation_mode="asymmetric")
    net.output("large", FLOAT, [net.batch, 3, 2 * SIZE, 2 * SIZE])


def translate(net):
    """A text network of one layer: for each word of a text the word of another language that fits best."""
    x = encoder(net, 32)
    logits = net.linear(x, 32, VOCABULARY)
    net.op("ArgMax", logits, axis=-1, keepdims=0, name="translated")
    net.output("translated", INT64, [net.batch, WORDS])


def encoder(net, hidden):
    words = net.input("words", INT64, WORDS)
    table = net.constant(net.random.standard_normal((VOCABULARY, hidden), dtype=np.float32))
    x = net.op("Add", net.op("Gather", table, words, axis=0), net.constant(net.random.normal(0, 0.1, (1, WORDS, hidden))))
    x = net.layer_norm(net.op("Add", attention(net, x, None, hidden, 2), x), hidden)
    return net.layer_norm(net.op("Add", net.linear(gelu(net, net.linear(x, hidden, 64)), 64, hidden), x), hidden)


def text_classes(net):
    x = net.op("ReduceMean", encoder(net, 32), axes=[1], keepdims=0)
    net.op("Softmax", net.linear(x, 32, 6), axis=-1, name="scores")
    net.output("scores", FLOAT, [net.batch, 6])


def fuse(net):
    """What a picture and a text say of a post together."""
    both = net.op("Concat", net.input("picture", FLOAT, 6), net.input("text", FLOAT, 6), axis=1)
    net.op("Softmax", net.linear(both, 12, 6), axis=-1, name="scores")
    net.output("scores", FLOAT, [net.batch, 6])


# By the names of the functions; `True`: for one picture at a time.
NETWORKS = {
    "detector": (detector, True),
    "car-types": (classes(resnet, CROP, 12), False),
    "plates": (classes(vgg, CROP, 36), False),
    "faces": (classes(resnet, CROP, 8), False),
    "face-finder": (face_finder, True),
    "super-resolution": (super_resolution, False),
    "enlarge": (enlarge, False),
    "pictures": (classes(vgg, SIZE, 6), False),
    "translate": (translate, False),
    "texts": (text_classes, False),
    "fuse": (fuse, False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name, (make, one) in NETWORKS.items():
        net = Net(name, args.seed, 1 if one else "batch")
        make(net)
        path = args.output / f"{name}.onnx"
        net.save(path)
        print(f"{path}: {len(net.nodes)} nodes, {path.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
