"""Cases of operators that move, resample or combine elements, and of attention: what opset 18 to 23 changed."""
import numpy as np

from harness import Const, floats, integers


def shapes(cases):
    x = floats(2, 3, 4, seed=60)
    for opset in (18, 19, 21, 23):
        cases.op("plain", opset, "Reshape", [x, Const([4, -1])])
        cases.op("copies", opset, "Reshape", [x, Const([0, 2, -1])])
        cases.op("plain", opset, "Flatten", [x], axis=2)
        cases.op("plain", opset, "Squeeze", [floats(2, 1, 3, seed=61), Const([1])])
        cases.op("plain", opset, "Unsqueeze", [x, Const([0, -1])])
        cases.op("plain", opset, "Transpose", [x], perm=[2, 0, 1])
        cases.op("plain", opset, "Identity", [x])
        cases.op("range", opset, "Shape", [x], start=1)
        cases.op("plain", opset, "Size", [x])
        cases.op("zeros", opset, "ConstantOfShape", [Const([2, 3])])
        cases.op("plain", opset, "Concat", [x, floats(2, 1, 4, seed=62)], axis=1)
        cases.op("plain", opset, "Gather", [x, integers(5, seed=63, low=0, high=3)], axis=1)
        cases.op("plain", opset, "Slice", [x, Const([0, 1]), Const([2, 4]), Const([1, 2])])
        cases.op("plain", opset, "Expand", [floats(3, 1, seed=64), Const([2, 3, 4])])
        cases.op("plain", opset, "Where", [x > 0, x, np.zeros_like(x)])
        cases.op("plain", opset, "TopK", [x, Const([2])], outputs=2)
        cases.op("plain", opset, "CumSum", [x, Const(1)])


def splits(cases):
    x = floats(7, 4, seed=65)
    for opset in (18, 23):
        cases.op("parts", opset, "Split", [x], outputs=2, num_outputs=2)
        cases.op("uneven_3", opset, "Split", [x], outputs=3, num_outputs=3)
        cases.op("even_axis_1", opset, "Split", [x], outputs=4, num_outputs=4, axis=1)
        cases.op("lengths", opset, "Split", [x, Const([2, 0, 5])], outputs=3)


def pads(cases):
    x = floats(2, 3, 4, seed=66)
    for opset in (18, 19, 21, 23):
        cases.op("axes", opset, "Pad", [x, Const([1, 2]), Const(1.5, np.float32), Const([1])])
        cases.op("axes_negative", opset, "Pad", [x, Const([1, 0, 2, 1]), None, Const([-1, 0])])
        cases.op("reflect_axes", opset, "Pad", [x, Const([2, 1]), None, Const([2])], mode="reflect")
        cases.op("edge", opset, "Pad", [x, Const([0, 1, 2, 1, 0, 1])], mode="edge")
    for opset in (19, 21, 23):
        cases.op("wrap", opset, "Pad", [x, Const([0, 1, 2, 0, 2, 3])], mode="wrap")
        cases.op("wrap_axes", opset, "Pad", [x, Const([3, 2]), None, Const([-1])], mode="wrap")
    cases.op("wrap_far", 19, "Pad", [floats(1, 3, seed=67), Const([0, 7, 0, 8])], mode="wrap",
             expected=[np.pad(floats(1, 3, seed=67), ((0, 0), (7, 8)), mode="wrap")])
    cases.op("int64", 21, "Pad", [integers(2, 2, seed=68, kind=np.int64), Const([1, 1]), Const(9), Const([0])])


def scatters(cases):
    data = floats(4, 3, seed=69)
    index = np.array([[0, 1, 2], [2, 1, 0]], np.int64)
    updates = floats(2, 3, seed=70)
    for reduction in ("add", "mul", "max", "min", "none"):
        cases.op(reduction, 18, "ScatterElements", [data, index, updates], reduction=reduction)
        cases.op(f"{reduction}_axis_1", 18, "ScatterElements", [data, index, updates], reduction=reduction, axis=1)
        where = np.array([[0], [3], [1]], np.int64)
        cases.op(reduction, 18, "ScatterND", [data, where, floats(3, 3, seed=71)], reduction=reduction)
        cases.op(f"{reduction}_elements", 18, "ScatterND",
                 [data, np.array([[0, 1], [3, 2]], np.int64), floats(2, seed=72)], reduction=reduction)
    twice = np.array([[1, 1, 1], [1, 1, 1]], np.int64)
    for reduction in ("add", "max", "min"):
        cases.op(f"{reduction}_twice", 18, "ScatterElements", [data, twice, updates], reduction=reduction)
        cases.op(f"{reduction}_int32", 18, "ScatterElements",
                 [integers(4, 3, seed=73), index, integers(2, 3, seed=74)], reduction=reduction)


def resizes(cases):
    x = floats(1, 2, 4, 6, seed=75)
    down, up = Const([1, 1, 0.6, 0.5], np.float32), Const([1, 1, 2, 1.5], np.float32)
    for opset in (18, 19):
        for mode in ("nearest", "linear", "cubic"):
            cases.op(f"{mode}_down", opset, "Resize", [x, None, down], mode=mode)
            cases.op(f"{mode}_up", opset, "Resize", [x, None, up], mode=mode)
            cases.op(f"{mode}_sizes", opset, "Resize", [x, None, None, Const([1, 2, 7, 3])], mode=mode)
            cases.op(f"{mode}_axes", opset, "Resize", [x, None, Const([1.5, 0.5], np.float32)], mode=mode, axes=[2, 3])
            cases.op(f"{mode}_axes_turned", opset, "Resize", [x, None, None, Const([3, 8])], mode=mode, axes=[3, 2])
            for policy in ("not_larger", "not_smaller"):
                cases.op(f"{mode}_{policy}", opset, "Resize", [x, None, None, Const([7, 8])], mode=mode, axes=[2, 3],
                         keep_aspect_ratio_policy=policy)
        for mode in ("linear", "cubic"):
            image = floats(1, 1, 9, 11, seed=76)
            cases.op(f"{mode}_antialias", opset, "Resize", [image, None, None, Const([1, 1, 4, 5])], mode=mode, antialias=1)
            cases.op(f"{mode}_antialias_scales", opset, "Resize", [image, None, Const([1, 1, 0.3, 0.55], np.float32)],
                     mode=mode, antialias=1)
            cases.op(f"{mode}_antialias_inside", opset, "Resize", [image, None, None, Const([1, 1, 4, 5])], mode=mode, antialias=1,
                     exclude_outside=1)
            cases.op(f"{mode}_antialias_up", opset, "Resize", [x, None, up], mode=mode, antialias=1)
        cases.op("pytorch_half_pixel", opset, "Resize", [x, None, None, Const([1, 2, 1, 5])], mode="linear",
                 coordinate_transformation_mode="pytorch_half_pixel")
        cases.op("align_corners", opset, "Resize", [x, None, None, Const([1, 2, 7, 9])], mode="linear",
                 coordinate_transformation_mode="align_corners")
        cases.op("asymmetric_floor", opset, "Resize", [x, None, up], mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric")
        cases.op("crop_axes", opset, "Resize", [x, Const([0.2, 0.1, 0.8, 0.9], np.float32), None, Const([3, 4])], mode="linear",
                 coordinate_transformation_mode="tf_crop_and_resize", axes=[2, 3])
    for mode in ("linear", "nearest", "cubic"):
        cases.op(f"{mode}_symmetric", 19, "Resize", [x, None, Const([1, 1, 0.55, 0.7], np.float32)], mode=mode,
                 coordinate_transformation_mode="half_pixel_symmetric")


def blocks(cases):
    for opset in (18, 22):
        cases.op("plain", opset, "Col2Im", [floats(1, 4, 4, seed=77), Const([4, 4]), Const([2, 2])], strides=[2, 2])
        cases.op("overlap", opset, "Col2Im", [floats(2, 18, 9, seed=78), Const([5, 5]), Const([3, 3])])
        cases.op("pads", opset, "Col2Im", [floats(1, 5, 15, seed=79), Const([5, 5]), Const([1, 5])], pads=[0, 1, 0, 1])
        cases.op("dilations", opset, "Col2Im", [floats(1, 4, 5, seed=80), Const([6, 6]), Const([2, 2])], dilations=[1, 5])
        cases.op("three", opset, "Col2Im", [floats(1, 10, 12, seed=81), Const([3, 4, 5]), Const([1, 1, 5])])
    x = floats(3, 5, 8, seed=82)

    def centred(array, wanted):
        for axis, size in enumerate(wanted):
            has = array.shape[axis]
            if has > size:
                first = (has - size) // 2
                array = np.take(array, range(first, first + size), axis)
            before = max(size - has, 0) // 2
            array = np.pad(array, [(before, max(size - has, 0) - before) if a == axis else (0, 0) for a in range(array.ndim)])
        return array

    for name, wanted in (("crop", (2, 3, 5)), ("pad", (5, 8, 9)), ("both", (4, 2, 8))):
        cases.op(name, 18, "CenterCropPad", [x, Const(list(wanted))], expected=[centred(x, wanted)])
    cases.op("axes", 18, "CenterCropPad", [x, Const([4, 7])], axes=[2, 0], expected=[centred(x, (7, 5, 4))])


def grids(cases):
    image, volume = floats(2, 2, 4, 5, seed=83), floats(1, 2, 3, 4, 5, seed=84)
    grid, places = floats(2, 3, 3, 2, seed=85, low=-1.3, high=1.3), floats(1, 2, 3, 2, 3, seed=86, low=-1.3, high=1.3)
    for opset in (20, 22):
        for mode in ("linear", "nearest", "cubic"):
            for padding in ("zeros", "border", "reflection"):
                for corners in (0, 1):
                    cases.op(f"{mode}_{padding}_{corners}", opset, "GridSample", [image, grid], mode=mode,
                             padding_mode=padding, align_corners=corners)
                    if mode != "cubic":
                        cases.op(f"volume_{mode}_{padding}_{corners}", opset, "GridSample", [volume, places], mode=mode,
                                 padding_mode=padding, align_corners=corners)
    for corners in (0, 1):
        cases.op(f"plane_{corners}", 20, "AffineGrid", [floats(2, 2, 3, seed=87), Const([2, 3, 4, 5])], align_corners=corners)
        cases.op(f"volume_{corners}", 20, "AffineGrid", [floats(2, 3, 4, seed=88), Const([2, 3, 2, 4, 5])],
                 align_corners=corners)


def pools(cases):
    x = floats(1, 2, 7, 8, seed=89)
    for opset in (19, 22):
        cases.op("dilated", opset, "AveragePool", [x], kernel_shape=[2, 2], dilations=[2, 2])
        cases.op("dilated_padded", opset, "AveragePool", [x], kernel_shape=[3, 2], dilations=[2, 1], pads=[1, 1, 1, 0],
                 count_include_pad=1)
        cases.op("ceil", opset, "AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        cases.op("same", opset, "AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    line = floats(1, 1, 5, seed=90)
    for op in ("AveragePool", "MaxPool"):  # the last window would begin behind the input
        cases.op("ceil_behind", 22, op, [line], kernel_shape=[1], strides=[2], pads=[0, 1] if op == "LpPool" else [0, 0],
                 ceil_mode=1)
        cases.op("ceil_padded", 22, op, [floats(1, 2, 5, 5, seed=91)], kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1],
                 ceil_mode=1)
    for opset in (18, 22):
        cases.op("dilated", opset, "LpPool", [x], kernel_shape=[2, 2], dilations=[2, 3], p=2)
        cases.op("plain", opset, "LpPool", [x], kernel_shape=[3, 3], strides=[2, 2], p=1)
        cases.op("plain", opset, "MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        cases.op("plain", opset, "GlobalAveragePool", [x])
        cases.op("plain", opset, "Conv", [x, Const(floats(3, 2, 3, 3, seed=92), np.float32)], pads=[1, 1, 1, 1])
        cases.op("plain", opset, "ConvTranspose", [x, Const(floats(2, 3, 3, 3, seed=93), np.float32)], strides=[2, 2])
    cases.op("plain", 18, "RoiAlign", [x, np.array([[0, 0, 5, 5]], np.float32), Const([0])], output_height=2,
             output_width=2)


def types(cases):
    x, w, b = floats(1, 4, 6, 6, seed=94), floats(6, 4, 3, 3, seed=95, low=-0.3, high=0.3), floats(6, seed=96)
    half = [a.astype(np.float16) for a in (x, w, b)]

    def convolved(groups, transposed=False):
        return dict(pads=[1, 1, 1, 1], group=groups) if not transposed else dict(strides=[2, 2], group=groups)

    for opset in (13, 18, 22):
        cases.op("float16", opset, "Conv", [half[0], Const(half[1], np.float16), Const(half[2], np.float16)], **convolved(1))
        cases.op("float16_groups", opset, "Conv", [half[0], half[1][:, :2], half[2]], **convolved(2))
        cases.op("float16", opset, "ConvTranspose", [half[0], Const(half[1][:4], np.float16)], **convolved(1, True))
    wide = floats(3, 4, seed=97, kind=np.float64), floats(4, 5, seed=98, kind=np.float64), floats(5, seed=99, kind=np.float64)
    for opset in (13, 18, 23):
        cases.op("float64", opset, "Gemm", [*wide], alpha=0.5, beta=2.0)
        cases.op("float64_turned", opset, "Gemm", [wide[0].T.copy(), wide[1].T.copy()], transA=1, transB=1)
        cases.op("float64_column", opset, "Gemm", [wide[0], wide[1], floats(3, 1, seed=1, kind=np.float64)])
        cases.op("float64", opset, "MatMul", [wide[0], wide[1]])
        cases.op("float64_batch", opset, "MatMul",
                 [floats(2, 1, 3, 4, seed=2, kind=np.float64), floats(5, 4, 2, seed=3, kind=np.float64)])
        cases.op("float64_vectors", opset, "MatMul", [floats(4, seed=4, kind=np.float64), floats(4, seed=5, kind=np.float64)])
        cases.op("float64_vector", opset, "MatMul", [floats(4, seed=4, kind=np.float64), wide[1]])


def add_all(cases):
    for add in (shapes, splits, pads, scatters, resizes, blocks, grids, pools, types):
        add(cases)
