"""If, Loop and Scan: each rule of docs/onnx.md once, and networks whose exporters left control flow in them."""
import numpy as np
from onnx import TensorProto, helper

from harness import Case, floats
from net import Net

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind=FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def graph(nodes, inputs, outputs):
    return helper.make_graph(nodes, "subgraph", inputs, outputs)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def constant(name, array):
    array = np.asarray(array)
    kind = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64, np.dtype(np.bool_): BOOL}[array.dtype]
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, kind, array.shape, array.flatten().tolist()))


def choose(condition, then, otherwise, output):
    """Each branch: its nodes; what it makes is called `output` outside and r inside."""
    branches = [graph(nodes, [], [info("r")]) for nodes in (then, otherwise)]
    return helper.make_node("If", [condition], output.split(), then_branch=branches[0], else_branch=branches[1])


def loop(inputs, outputs, nodes, carried, gathered=(), on=None, tag="", part=None):
    """Carried values are (inside, made, type); `on` makes the body's condition, which is else handed on. `tag` begins the
    names of what the body is given. `part`: the shape of what is gathered in each trip, without which onnxruntime knows none
    when there is no trip."""
    body = graph(nodes + (on or [node("Identity", f"{tag}go", f"{tag}goes")]),
                 [info(f"{tag}i", INT64, []), info(f"{tag}go", BOOL, [])] + [info(v, kind) for v, _, kind in carried],
                 [info(f"{tag}goes", BOOL, [])] + [info(w, kind) for _, w, kind in carried] + [info(g, FLOAT, part) for g in gathered])
    return helper.make_node("Loop", inputs, outputs.split(), body=body)


def if_cases():
    x, y = floats(3, 4, seed=1), floats(3, 4, seed=2)
    for on in (True, False):
        flag = np.array(on)
        name = "true" if on else "false"
        yield Case(f"if_{name}_18", 18, [choose("c", [node("Mul", "x y", "r")], [node("Sub", "x w", "r")], "z")],
                   {"c": flag, "x": x, "y": y}, {"w": floats(4, seed=3)}, ["z"])
        # Of other sizes, and what reads them.
        yield Case(f"if_sizes_{name}_21", 21,
                   [choose("c", [node("Concat", "x y", "r", axis=0)], [node("Identity", "x", "r")], "z"),
                    node("Relu", "z", "a"), node("ReduceSum", "a", "s", keepdims=0)],
                   {"c": np.array([on]), "x": x, "y": y}, {}, ["a", "s"])
        inner = [choose("d", [node("Abs", "t", "r")], [node("Neg", "t", "r")], "u"), node("Add", "u y", "r")]
        yield Case(f"if_nested_{name}_23", 23,
                   [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s limit", "d"),
                    choose("c", [node("Exp", "x", "t")] + inner, [node("Sin", "x", "r")], "z")],
                   {"c": flag, "x": x, "y": y}, {"limit": np.float32(0)}, ["z"])
    # As exporters write squeeze: which branch is known from the shape.
    for rows in (1, 3):
        yield Case(f"if_squeeze_{rows}_18", 18,
                   [node("Shape", "x", "dims"), node("Gather", "dims zero", "n", axis=0), node("Equal", "n one", "c"),
                    choose("c", [node("Squeeze", "x axes", "r")], [node("Identity", "x", "r")], "t"), node("Tanh", "t", "z")],
                   {"x": floats(rows, 4, seed=4)}, {"zero": np.int64(0), "one": np.int64(1), "axes": np.array([0])}, ["z"],
                   symbols={"x": ["N", 4]})


def loop_cases():
    x, s = floats(2, 3, seed=5), floats(2, 3, seed=6)
    step = [node("Mul", "v half", "h"), node("Add", "h x", "w")]
    half = {"half": np.float32(0.5)}
    for trips in (0, 1, 4):
        yield Case(f"loop_trips_{trips}_18", 18, [loop(["n", "", "s"], "y", step, [("v", "w", FLOAT)])],
                   {"n": np.array([trips]), "s": s, "x": x}, half, ["y"])
        yield Case(f"loop_gather_{trips}_21", 21, [loop(["n", "on", "s"], "y all", step + [node("Relu", "w", "g")],
                                                        [("v", "w", FLOAT)], ["g"], part=[2, 3])],
                   {"s": s, "x": x}, half | {"n": np.int64(trips), "on": np.array(True)}, ["y", "all"])
    until = [node("ReduceMax", "w", "top", keepdims=0), node("Less", "top limit", "goes")]
    for name, limit in (("early", 1.5), ("late", 100.0)):
        grow = [node("Mul", "v two", "w")]
        more = {"two": np.float32(2), "limit": np.float32(limit)}
        yield Case(f"loop_while_{name}_23", 23, [loop(["", "on", "s"], "y", grow, [("v", "w", FLOAT)], on=until)],
                   {"on": np.array(True), "s": s}, more, ["y"])
        yield Case(f"loop_until_{name}_18", 18, [loop(["n", "on", "s"], "y all", grow + [node("Neg", "w", "g")],
                                                      [("v", "w", FLOAT)], ["g"], on=until)],
                   {"on": np.array(True), "s": s}, more | {"n": np.int64(5)}, ["y", "all"])
        # Without a condition at first, the body's is heard.
        yield Case(f"loop_no_condition_{name}_18", 18, [loop(["n", "", "s"], "y", grow, [("v", "w", FLOAT)], on=until)],
                   {"n": np.int64(9), "s": s}, more, ["y"])
    yield Case("loop_never_21", 21, [loop(["n", "on", "s"], "y all", step + [node("Relu", "w", "g")],
                                          [("v", "w", FLOAT)], ["g"], part=[2, 3])],
               {"on": np.array(False), "s": s, "x": x}, half | {"n": np.int64(3)}, ["y", "all"])
    # The trip's number chooses what is read; two values are carried.
    yield Case("loop_number_19", 19,
               [loop(["n", "", "s", "count"], "y c all", [node("Gather", "x i", "row", axis=0), node("Add", "v row", "w"),
                                                          node("Add", "k i", "l"), node("Identity", "row", "g")],
                     [("v", "w", FLOAT), ("k", "l", INT64)], ["g"])],
               {"s": floats(3, seed=7), "x": floats(4, 3, seed=8), "count": np.int64(5)}, {"n": np.int64(4)}, ["y", "c", "all"])
    # What a trip makes is broadcast to its size in the first one, or may become smaller.
    yield Case("loop_broadcast_18", 18, [loop(["n", "", "s"], "y", [node("Add", "v x", "w")], [("v", "w", FLOAT)])],
               {"n": np.int64(3), "s": np.zeros((1, 1), np.float32), "x": x}, {}, ["y"])
    yield Case("loop_shorter_18", 18,
               [loop(["n", "", "s"], "y", [node("Slice", "v one end zero", "w")], [("v", "w", FLOAT)])],
               {"n": np.int64(3), "s": floats(6, 2, seed=9)},
               {"one": np.array([1]), "end": np.array([100]), "zero": np.array([0])}, ["y"])
    inside = loop(["m", "", "v"], "w", [node("Add", "a x", "b")], [("a", "b", FLOAT)], tag="inner_")
    yield Case("loop_in_branch_23", 23,
               [choose("c", [loop(["n", "", "s"], "r", [node("Add", "i one", "m"), inside], [("v", "w", FLOAT)])],
                       [node("Neg", "x", "r")], "y")],
               {"c": np.array(True), "n": np.int64(3), "s": s, "x": x}, {"one": np.int64(1)}, ["y"])
    yield Case("branch_in_loop_18", 18,
               [loop(["n", "", "s"], "y", [node("Mod", "i two", "odd"), node("Cast", "odd", "is", to=BOOL),
                                           choose("is", [node("Mul", "v x", "r")], [node("Add", "v x", "r")], "w")],
                     [("v", "w", FLOAT)])],
               {"n": np.int64(5), "s": s, "x": x}, {"two": np.int64(2)}, ["y"])


def scan(inputs, outputs, nodes, states, parts, made, **attributes):
    body = graph(nodes, [info(v) for v in states + parts], [info(v) for v in made])
    return helper.make_node("Scan", inputs.split(), outputs.split(), body=body, num_scan_inputs=len(parts), **attributes)


def scan_cases():
    x, y, s = floats(4, 2, 3, seed=10), floats(2, 3, 4, seed=11), floats(2, 3, seed=12)
    step = [node("Mul", "p q", "t"), node("Add", "v t", "w"), node("Neg", "w", "g")]
    for back in (0, 1):
        for axis in (0, 1, -1):
            yield Case(f"scan_{'back' if back else 'on'}_{'end' if axis < 0 else axis}_21", 21,
                       [scan("s x y", "last all", step, ["v"], ["p", "q"], ["w", "g"], scan_input_axes=[0, 2],
                             scan_input_directions=[back, 1 - back], scan_output_axes=[axis], scan_output_directions=[back])],
                       {"s": s, "x": x, "y": y}, {}, ["last", "all"])
    yield Case("scan_plain_18", 18, [scan("x", "all", [node("Mul", "p k", "g")], [], ["p"], ["g"])], {"x": x},
               {"k": floats(3, seed=13)}, ["all"], symbols={"x": ["length", 2, 3]})


def early_exit():
    """A classifier that leaves after its first block when that is sure enough."""
    for seed in (1, 2):
        net = Net(f"network_early_exit_{seed}", 18, seed)
        x = net.input("image", net.floats(1, 3, 12, 12), [1, 3, 12, 12])
        features = net.op("Relu", net.conv(x, 3, 16))
        pooled = net.op("ReduceMean", features, net.ints(2, 3), keepdims=0)
        first = net.op("Softmax", net.linear(pooled, 16, 5), axis=-1)
        sure = net.op("Greater", net.op("ReduceMax", first, keepdims=0), net.const([0.25, 0.9][seed - 1], np.float32))
        filters, bias = net.weight(16, 16, 3, 3), net.weight(16)
        head, shift, axes = net.weight(16, 5, low=-1, high=1), net.weight(5), net.ints(2, 3)
        rest = [node("Conv", f"{features} {filters} {bias}", "c", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
                node("Add", f"c {features}", "d"), node("Relu", "d", "e"), node("ReduceMean", f"e {axes}", "f", keepdims=0),
                node("MatMul", f"f {head}", "h"), node("Add", f"h {shift}", "k"), node("Softmax", "k", "r", axis=-1)]
        made = net.name("If")
        net.case.nodes.append(choose(sure, [node("Identity", first, "r")], rest, made))
        net.output(made, "classes")
        yield net.case


def greedy_decoder():
    """Writes one token after the other into a buffer of the final length, until the end token."""
    net = Net("network_greedy", 21, 3)
    width, words = 16, 12
    memory = net.input("memory", net.floats(1, 5, width), [1, 5, width])
    table, into, out = net.weight(words, width, low=-2, high=2), net.weight(width, width), net.weight(width, words, low=-2, high=2)
    scale, axis, one = net.const(np.float32(0.25)), net.ints(1), net.ints(1)
    start, tokens, most = net.const(np.array([0])), net.const(np.zeros((8, 1), np.int64)), net.const(8, np.int64)
    first, end, on = net.ints(-1, 1), net.const(7, np.int64), net.const(np.array(True))
    nodes = [node("Gather", f"{table} token", "e", axis=0), node("Add", "e state", "q0"), node("MatMul", f"q0 {into}", "q"),
             node("Unsqueeze", f"q {axis}", "q3"), node("Transpose", memory, "k", perm=[0, 2, 1]), node("MatMul", "q3 k", "scores"),
             node("Mul", f"scores {scale}", "scaled"), node("Softmax", "scaled", "weights", axis=-1),
             node("MatMul", f"weights {memory}", "read"), node("Squeeze", f"read {axis}", "r2"), node("Add", "r2 q", "sum"),
             node("Tanh", "sum", "next_state"), node("MatMul", f"next_state {out}", "logits"),
             node("ArgMax", "logits", "next", axis=-1, keepdims=0), node("Reshape", f"i {first}", "place"),
             node("Unsqueeze", f"next {axis}", "update"), node("ScatterND", "buffer place update", "filled"),
             node("ReduceMax", "next", "word", keepdims=0), node("Equal", f"word {end}", "ended"), node("Identity", "logits", "l")]
    made = helper.make_node("Loop", [most, on, start, net.const(np.zeros((1, width), np.float32)), tokens],
                            ["/t", "/s", "/b", "/l"], body=graph(
        nodes + [node("Not", "ended", "goes")],
        [info("i", INT64, []), info("go", BOOL, []), info("token", INT64, [1]), info("state", FLOAT, [1, width]),
         info("buffer", INT64, [8, 1])],
        [info("goes", BOOL, []), info("next", INT64), info("next_state"), info("filled", INT64), info("l")]))
    net.case.nodes.append(made)
    net.output("/b", "tokens")
    net.output("/l", "logits")
    return net.case


def scanned_gru():
    """A recurrent layer that an exporter wrote as a Scan over time, of two directions."""
    net = Net("network_scanned_gru", 18, 4)
    x = net.input("x", net.floats(2, 7, 6), ["batch", 7, 6])
    batch = net.op("Concat", net.dimension(x, 0), net.ints(8), axis=0)
    zeros = net.op("Expand", net.const(np.zeros((1, 1), np.float32)), batch)
    ends = []
    for back in (0, 1):
        wz, wh, uz, uh, bz, bh = (net.weight(*shape) for shape in ((6, 8), (6, 8), (8, 8), (8, 8), (8,), (8,)))
        one = net.const(np.float32(1))
        nodes = [node("MatMul", f"p {wz}", "a"), node("MatMul", f"h {uz}", "b"), node("Sum", f"a b {bz}", "c"), node("Sigmoid", "c", "z"),
                 node("MatMul", f"p {wh}", "d"), node("MatMul", f"h {uh}", "e"), node("Sum", f"d e {bh}", "f"), node("Tanh", "f", "n"),
                 node("Sub", f"{one} z", "k"), node("Mul", "k n", "l"), node("Mul", "z h", "m"), node("Add", "l m", "next"),
                 node("Identity", "next", "g")]
        made = net.name("Scan"), net.name("Scan")
        net.case.nodes.append(scan(f"{zeros} {x}", " ".join(made), nodes, ["h"], ["p"], ["next", "g"], scan_input_axes=[1],
                                   scan_output_axes=[1], scan_input_directions=[back], scan_output_directions=[back]))
        ends.append(made[1])
    net.output(net.linear(net.op("Concat", *ends, axis=2), 16, 4), "tags")
    return net.case


def all_cases():
    return [*if_cases(), *loop_cases(), *scan_cases(), *early_exit(), greedy_decoder(), scanned_gru()]
