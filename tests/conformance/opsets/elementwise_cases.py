"""Cases of operators that work element by element, of reductions and of normalisations: what opset 18 to 23 changed."""
import numpy as np

from harness import Const, floats, integers

REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
              "ReduceSum", "ReduceSumSquare"]


def reductions(cases):
    x = floats(2, 3, 4, seed=1, low=0.5)
    for op in REDUCTIONS:
        cases.op("axes", 18, op, [x, Const([1])])
        cases.op("axes_dropped", 18, op, [x, Const([-1, 0])], keepdims=0)
        cases.op("all", 18, op, [x])
        cases.op("all_empty_axes", 18, op, [x, Const([])], keepdims=0)
        cases.op("whole", 21, op, [x, Const([2, 1, 0])])
    for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"):  # which apply nothing to one element
        cases.op("noop", 18, op, [x], noop_with_empty_axes=1)
        cases.op("noop_empty_axes", 20, op, [x, Const([])], noop_with_empty_axes=1)
        cases.op("int32", 18, op, [integers(3, 4, seed=2, low=-9, high=9), Const([0])])
    for op in ("ReduceMax", "ReduceMin"):
        truth = integers(4, 3, seed=3, low=0, high=2, kind=np.int64) > 0
        cases.op("bool", 20, op, [truth, Const([1])])
        cases.op("bool_all", 20, op, [truth], keepdims=0)
        cases.op("int8", 20, op, [integers(3, 4, seed=4, kind=np.int8), Const([0])])
        cases.op("uint8", 20, op, [integers(3, 4, seed=4, low=0, kind=np.uint8), Const([1])], keepdims=0)
    cases.op("float16", 18, "ReduceMean", [floats(3, 5, seed=5, kind=np.float16), Const([1])])
    cases.op("float64", 18, "ReduceL2", [floats(3, 5, seed=5, kind=np.float64), Const([0])])


def bitwise(cases):
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        low = 0 if np.dtype(kind).kind == "u" else -100
        a, b = integers(3, 4, seed=6, low=low, kind=kind), integers(4, seed=7, low=low, kind=kind)
        name = np.dtype(kind).name
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            cases.op(name, 18, op, [a, b])
        cases.op(name, 18, "BitwiseNot", [a])
    cases.op("stretched", 18, "BitwiseXor", [integers(2, 1, 3, seed=8), integers(4, 1, seed=9)])


def functions(cases):
    x = np.concatenate([floats(3, 20, seed=10, low=-6, high=6), np.array([[0, 30, -30, 100, -100] * 4], np.float32)])
    cases.op("plain", 18, "Mish", [x])
    cases.op("float64", 22, "Mish", [x.astype(np.float64)], expected=[x.astype(np.float64) * np.tanh(
        np.logaddexp(0, x.astype(np.float64)))])
    cases.op("plain", 20, "Gelu", [x])
    cases.op("none", 20, "Gelu", [x], approximate="none")
    cases.op("tanh", 20, "Gelu", [x], approximate="tanh")
    wide = x.astype(np.float64)
    cases.op("tanh_float64", 20, "Gelu", [wide], approximate="tanh",
             expected=[wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide ** 3)))])
    odd = np.array([1, np.nan, np.inf, -np.inf, 0], np.float32)
    for kind in (np.float32, np.float64, np.float16):
        cases.op(np.dtype(kind).name, 20, "IsNaN", [odd.astype(kind)])
        cases.op(np.dtype(kind).name, 20, "IsInf", [odd.astype(kind)])
    cases.op("positive", 20, "IsInf", [odd], detect_negative=0)
    cases.op("negative", 20, "IsInf", [odd], detect_positive=0)
    one = floats(3, 4, seed=11)
    for op in ("Acos", "Asin", "Atanh"):
        cases.op("inside", 22, op, [floats(3, 4, seed=12, low=-0.9, high=0.9)])
    for op in ("Atan", "Asinh", "Cos", "Sin", "Tan", "Sinh", "Cosh", "Elu", "HardSigmoid", "HardSwish", "Round", "Selu",
               "Softplus", "Softsign", "ThresholdedRelu"):
        cases.op("plain", 22, op, [one])
    cases.op("plain", 22, "Acosh", [floats(3, 4, seed=13, low=1.1, high=5)])
    for opset in (18, 19, 20, 21, 22, 23):  # what has not changed since
        for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Sqrt", "Abs", "Neg"):
            cases.op("still", opset, op, [np.abs(one) + 1])
        for op in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"):
            cases.op("still", opset, op, [np.abs(one) + 1, floats(4, seed=14, low=0.5)])
    for opset in (19, 21, 23):
        cases.op("still", opset, "Equal", [integers(4, 3, seed=15, low=0, high=3), integers(3, seed=16, low=0, high=3)])


def casts(cases):
    x = np.array([[0.4, 1.5, -2.7], [100, 0, -1]], np.float32)
    for opset in (19, 21, 23):
        for to, number in (("float64", 11), ("float16", 10), ("int32", 6), ("int64", 7), ("bool", 9), ("int8", 3)):
            cases.op(f"float32_to_{to}", opset, "Cast", [x], to=number)
        cases.op("float16_to_float32", opset, "Cast", [x.astype(np.float16)], to=1)
        cases.op("int32", opset, "CastLike", [x, Const([1], np.int32)])


def normalisations(cases):
    image = floats(2, 6, 3, 4, seed=20)
    for groups in (1, 2, 3, 6):
        scale, bias = floats(groups, seed=21), floats(groups, seed=22)
        m = image.reshape(2, groups, -1).astype(np.float64)
        normal = (m - m.mean(-1, keepdims=True)) / np.sqrt(m.var(-1, keepdims=True) + 1e-5)
        old = normal * scale[None, :, None] + bias[None, :, None]
        cases.op(f"groups_{groups}", 18, "GroupNormalization", [image, Const(scale, np.float32), Const(bias, np.float32)],
                 num_groups=groups, expected=[old.reshape(image.shape).astype(np.float32)])
        each, shift = floats(6, seed=23), floats(6, seed=24)
        cases.op(f"groups_{groups}", 21, "GroupNormalization", [image, Const(each, np.float32), Const(shift, np.float32)],
                 num_groups=groups)
    cases.op("epsilon", 23, "GroupNormalization", [floats(1, 4, 5, seed=25), floats(4, seed=26), floats(4, seed=27)],
             num_groups=2, epsilon=0.1)
    cases.op("rank_2", 21, "GroupNormalization", [floats(3, 4, seed=28), floats(4, seed=29), floats(4, seed=30)], num_groups=2)
    x = floats(2, 3, 4, 5, seed=31)
    for axis in (-1, 1, 2, 3, -3):
        shape = x.shape[axis:] if axis >= 0 else x.shape[axis:]
        cases.op(f"axis_{axis}".replace("-", "m"), 23, "RMSNormalization", [x, floats(*shape, seed=32)], axis=axis)
        cases.op(f"axis_{axis}".replace("-", "m"), 18, "LayerNormalization",
                 [x, floats(*shape, seed=32), floats(*shape, seed=33)], axis=axis)
    cases.op("epsilon", 23, "RMSNormalization", [x, floats(5, seed=34)], epsilon=0.5)
    half = floats(2, 8, seed=35, kind=np.float16)
    cases.op("float16", 23, "RMSNormalization", [half, floats(8, seed=36, kind=np.float16)])
    for opset in (18, 21, 23):
        cases.op("no_bias", opset, "LayerNormalization", [x, floats(5, seed=37)])
        cases.op("plain", opset, "InstanceNormalization", [x, floats(3, seed=38), floats(3, seed=39)])
        cases.op("plain", opset, "Softmax", [x], axis=1)
        cases.op("plain", opset, "BatchNormalization",
                 [x] + [floats(3, seed=s, low=0.5) for s in (40, 41, 42, 43)])
        cases.op("plain", opset, "Dropout", [x])
        cases.op("mask", opset, "Dropout", [x, Const(0.3, np.float32)], outputs=2)
        cases.op("training_without_ratio", opset, "Dropout", [x, Const(0, np.float32), Const(True, np.bool_)], outputs=2)


def quantisation(cases):
    x = floats(2, 6, 4, seed=50, low=-20, high=20)
    for kind in (np.int8, np.uint8):
        zero = np.array(3, kind)
        for opset in (19, 21, 23):
            cases.op(f"scalar_{np.dtype(kind).name}", opset, "QuantizeLinear", [x, Const(0.11, np.float32), Const(zero, kind)])
            stored = integers(2, 6, 4, seed=51, low=0 if kind == np.uint8 else -100, kind=kind)
            cases.op(f"scalar_{np.dtype(kind).name}", opset, "DequantizeLinear",
                     [stored, Const(0.11, np.float32), Const(zero, kind)])
            cases.op(f"channels_{np.dtype(kind).name}", opset, "DequantizeLinear",
                     [stored, Const(floats(6, seed=52, low=0.01, high=0.3), np.float32), Const(np.arange(6), kind)], axis=1)
    for kind in (np.int16, np.uint16):
        low = 0 if kind == np.uint16 else -3000
        cases.op(np.dtype(kind).name, 21, "QuantizeLinear", [x, Const(0.0021, np.float32), Const(7, kind)])
        cases.op(np.dtype(kind).name, 21, "DequantizeLinear",
                 [integers(3, 5, seed=53, low=low, high=3000, kind=kind), Const(0.0021, np.float32), Const(7, kind)])
    for opset in (21, 23):
        for axis, block, shape in ((1, 3, (2, 2, 4)), (2, 2, (2, 6, 2)), (-1, 4, (2, 6, 1)), (0, 1, (2, 6, 4))):
            scale = floats(*shape, seed=54, low=0.05, high=0.3)
            name = f"blocks_{axis}_{block}".replace("-", "m")
            cases.op(name, opset, "QuantizeLinear", [x, Const(scale, np.float32), Const(np.ones(shape), np.int8)],
                     axis=axis, block_size=block)
            cases.op(name, opset, "DequantizeLinear",
                     [integers(2, 6, 4, seed=55, kind=np.int8), Const(scale, np.float32), Const(np.ones(shape), np.int8)],
                     axis=axis, block_size=block)
    cases.op("output_dtype", 21, "QuantizeLinear", [x, Const(0.2, np.float32)], output_dtype=3)
    half = x.astype(np.float16)
    cases.op("float16", 19, "DequantizeLinear", [integers(3, 5, seed=56, kind=np.int8), Const(0.25, np.float16), Const(2, np.int8)])
    cases.op("float16", 19, "QuantizeLinear", [half, Const(0.25, np.float16), Const(2, np.int8)])
    # A last block that is shorter, which onnxruntime refuses: from the definition.
    row = floats(2, 5, seed=57, low=-9, high=9)
    scale = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], np.float32)
    each = np.repeat(scale, 2, axis=1)[:, :5]
    cases.op("short_block", 21, "QuantizeLinear", [row, Const(scale, np.float32)], axis=1, block_size=2,
             expected=[np.clip(np.rint(row / each), 0, 255).astype(np.uint8)])


def add_all(cases):
    for add in (reductions, bitwise, functions, casts, normalisations, quantisation):
        add(cases)
