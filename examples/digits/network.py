"""Small networks for 8x8 digits: described as a list of layers, trained with PyTorch, written and read back as ONNX.

PyTorch is imported where it trains, so that `run` needs numpy and onnx alone."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# ("conv", channels): 3x3 with batch norm and ReLU; ("pool",): 2x2 maximum; ("dense", units): with ReLU, the last without.


def build(layers):
    import torch
    modules, channels, side, features = [], 1, 8, None
    for kind, *arguments in layers:
        if kind == "conv":
            modules += [torch.nn.Conv2d(channels, arguments[0], 3, padding=1), torch.nn.BatchNorm2d(arguments[0]),
                        torch.nn.ReLU()]
            channels = arguments[0]
        elif kind == "pool":
            modules.append(torch.nn.MaxPool2d(2))
            side //= 2
        else:
            if features is None:
                modules.append(torch.nn.Flatten())
                features = channels * side * side
            modules += [torch.nn.Linear(features, arguments[0]), torch.nn.ReLU()]
            features = arguments[0]
    return torch.nn.Sequential(*modules[:-1])


def jitter(images, random):
    """Each image turned, scaled and shifted a little, so that a writer's slant is not learnt."""
    import torch
    count = images.shape[0]
    angle = (torch.rand(count, generator=random) - 0.5) * 0.5
    scale = 1 + (torch.rand(count, 2, generator=random) - 0.5) * 0.3
    shift = (torch.rand(count, 2, generator=random) - 0.5) * 0.5
    shear = (torch.rand(count, generator=random) - 0.5) * 0.4
    matrix = torch.stack([torch.stack([scale[:, 0] * angle.cos(), -angle.sin() + shear, shift[:, 0]], 1),
                          torch.stack([angle.sin(), scale[:, 1] * angle.cos(), shift[:, 1]], 1)], 1)
    grid = torch.nn.functional.affine_grid(matrix, images.shape, align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)


def train(layers, images, labels, seed, epochs=100, batch=64):
    """Deterministic for one machine and version of PyTorch."""
    import torch
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    random = torch.Generator().manual_seed(seed)
    network = build(layers)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * ((len(images) + batch - 1) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(x), generator=random).split(batch):
            loss = torch.nn.functional.cross_entropy(network(jitter(x[chosen], random)), y[chosen],
                                                     label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def to_onnx(network, name):
    """image [N, 1, 8, 8] -> probabilities [N, 10], N any; opset 13."""
    import torch
    nodes, constants, value = [], [], "image"

    def constant(tensor):
        constants.append(numpy_helper.from_array(tensor.detach().numpy(), f"c{len(constants)}"))
        return constants[-1].name

    def add(operator, inputs, **attributes):
        nodes.append(helper.make_node(operator, inputs, [f"v{len(nodes)}"], f"{operator.lower()}_{len(nodes)}",
                                      **attributes))
        return nodes[-1].output[0]

    for module in network:
        if isinstance(module, torch.nn.Conv2d):
            value = add("Conv", [value, constant(module.weight), constant(module.bias)], kernel_shape=[3, 3],
                        pads=[1, 1, 1, 1])
        elif isinstance(module, torch.nn.BatchNorm2d):
            value = add("BatchNormalization", [value] + [constant(t) for t in (
                module.weight, module.bias, module.running_mean, module.running_var)], epsilon=module.eps)
        elif isinstance(module, torch.nn.ReLU):
            value = add("Relu", [value])
        elif isinstance(module, torch.nn.MaxPool2d):
            value = add("MaxPool", [value], kernel_shape=[2, 2], strides=[2, 2])
        elif isinstance(module, torch.nn.Flatten):
            value = add("Flatten", [value], axis=1)
        else:
            value = add("Gemm", [value, constant(module.weight), constant(module.bias)], transB=1)
    nodes.append(helper.make_node("Softmax", [value], ["probabilities"], "softmax", axis=1))
    return finish(name, nodes, [("image", ["N", 1, 8, 8])], constants)


def finish(name, nodes, inputs, constants):
    """A checked model with the one output `probabilities` [N, 10]."""
    def info(tensor, shape):
        return helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, name, [info(*each) for each in inputs], [info("probabilities", ["N", 10])],
                              constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="troupe-examples")
    model.ir_version = 7
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model, **inputs):
    """The model's output by numpy alone, so that the accuracy that is reported is that of the file."""
    values = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer} | inputs
    for node in model.graph.node:
        values[node.output[0]] = _OPERATORS[node.op_type](*(values[name] for name in node.input))
    return values["probabilities"]


def _conv(x, weight, bias):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True) + bias[:, None, None]


def _batch_norm(x, scale, bias, mean, variance):
    factor = scale / np.sqrt(variance + 1e-5)
    return x * factor[:, None, None] + (bias - mean * factor)[:, None, None]


def _softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_OPERATORS = {
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "Relu": lambda x: np.maximum(x, 0),
    "MaxPool": lambda x: x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max(axis=(3, 5)),
    "Flatten": lambda x: x.reshape(len(x), -1),
    "Gemm": lambda x, weight, bias: x @ weight.T + bias,
    "Softmax": _softmax,
    "Mean": lambda *tensors: sum(tensors) / len(tensors),
}


def accuracy(probabilities, labels):
    return float((probabilities.argmax(axis=1) == labels).mean())
