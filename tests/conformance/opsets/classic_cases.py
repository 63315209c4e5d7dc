"""Cases of classic models (domain ai.onnx.ml): each operator alone, and models as exporters write them."""
import numpy as np
from onnx import TensorProto, helper

import classic_trees as trees
from harness import Case, floats, integers

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


class Collector:
    def __init__(self):
        self.list = []

    def op(self, name, operator, values, outputs=1, version=3, opset=18, expected=None, **attributes):
        """`values`: inputs of the run, or tuples of one value for an initialiser. `expected`: where onnxruntime lacks the
        type."""
        inputs, constants = {}, {}
        for i, value in enumerate(values):
            (constants if isinstance(value, tuple) else inputs)[f"x{i}"] = value[0] if isinstance(value, tuple) else value
        made = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(operator, [f"x{i}" for i in range(len(values))], made, domain=ML, **attributes)
        self.list.append(Case(f"{operator.lower()}_{name}", opset, [node], inputs, constants, made, expected, domains={ML: version}))


def features(cases):
    x = floats(5, 3, seed=1)
    whole = integers(4, 3, seed=2, low=-5, high=6, kind=np.int64)
    for name, value in (("float", x), ("double", x.astype(np.float64)), ("int64", whole), ("int32", whole.astype(np.int32)),
                        ("row", x[0])):
        cases.op(name, "Scaler", [value], offset=[0.5, -1.0, 0.25], scale=[2.0, 0.1, -3.0])
        for norm in ("MAX", "L1", "L2"):
            cases.op(f"{norm.lower()}_{name}", "Normalizer", [value], norm=norm)
        if value.ndim == 2:
            above = None if name == "float" else [(value > 0.5).astype(value.dtype)]
            cases.op(name, "Binarizer", [value], threshold=0.5, expected=above)
    cases.op("one", "Scaler", [x], offset=[0.5], scale=[2.0])
    zeros = np.array([[0, 0, 0], [3, -4, 0], [1, 1, 1]], np.float32)
    for norm in ("MAX", "L1", "L2"):
        cases.op(f"{norm.lower()}_zeros", "Normalizer", [zeros], norm=norm)
    holes = x.copy()
    holes[[0, 2, 4], [0, 1, 2]] = np.nan
    cases.op("nan", "Imputer", [holes], imputed_value_floats=[1.5, -2.0, 3.0], replaced_value_float=float("nan"))
    cases.op("nan_one", "Imputer", [holes], imputed_value_floats=[9.0], replaced_value_float=float("nan"))
    cases.op("zero", "Imputer", [zeros], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=0.0)
    cases.op("int64", "Imputer", [whole], imputed_value_int64s=[7, 8, 9], replaced_value_int64=-1)
    cases.op("two", "FeatureVectorizer", [x, floats(5, 2, seed=3)], inputdimensions=[3, 2])
    cases.op("ints", "FeatureVectorizer", [whole, integers(4, 1, seed=4, kind=np.int64)], inputdimensions=[3, 1])


def categories(cases):
    ids = np.array([[1, 5, 7], [5, 5, -3]], np.int64)
    cases.op("int64", "OneHotEncoder", [ids], cats_int64s=[1, 5, 9], zeros=1)
    cases.op("int32", "OneHotEncoder", [ids.astype(np.int32)], cats_int64s=[7, 5, 1], zeros=1,
             expected=[(ids[:, :, None] == np.array([7, 5, 1])).astype(np.float32)])
    cases.op("float", "OneHotEncoder", [ids.astype(np.float32)], cats_int64s=[1, 5, 7, -3], zeros=0)
    cases.op("double", "OneHotEncoder", [ids.astype(np.float64)], cats_int64s=[1, 5, 7, -3], zeros=0)
    real = np.array([[1.5, np.nan, -2.0], [0.0, 1.5, 3.25]], np.float32)
    for version in (2, 4):
        cases.op(f"int_to_int_{version}", "LabelEncoder", [ids], version=version, keys_int64s=[5, 1, 8], values_int64s=[50, 10, 80],
                 default_int64=-7)
        cases.op(f"int_to_float_{version}", "LabelEncoder", [ids], version=version, keys_int64s=[5, 1], values_floats=[0.5, 0.1])
        keys = [1.5, 9.0 if version == 2 else float("nan"), 3.25]  # onnxruntime finds a NaN from version 4 on
        cases.op(f"float_to_int_{version}", "LabelEncoder", [real], version=version, keys_floats=keys, values_int64s=[3, 4, 5])
        cases.op(f"float_to_float_{version}", "LabelEncoder", [real], version=version, keys_floats=[-2.0], values_floats=[2.0],
                 default_float=0.25)
    cases.op("tensors", "LabelEncoder", [ids], version=4, keys_tensor=helper.make_tensor("k", TensorProto.INT64, [2], [5, 1]),
             values_tensor=helper.make_tensor("v", TensorProto.INT64, [2], [2 ** 60, 7]),
             default_tensor=helper.make_tensor("d", TensorProto.INT64, [1], [-9]))
    cases.op("double_tensors", "LabelEncoder", [real.astype(np.float64)], version=4,
             keys_tensor=helper.make_tensor("k", TensorProto.DOUBLE, [2], [1.5, 0.0]),
             values_tensor=helper.make_tensor("v", TensorProto.DOUBLE, [2], [0.1, 0.2]),
             default_tensor=helper.make_tensor("d", TensorProto.DOUBLE, [1], [1e-300]))
    x = floats(3, 4, seed=5)
    cases.op("columns", "ArrayFeatureExtractor", [x, (np.array([[3, 0, 3]], np.int64),)])
    cases.op("row", "ArrayFeatureExtractor", [x[0], (np.array([2], np.int64),)])
    cases.op("at_run", "ArrayFeatureExtractor", [x.astype(np.float64), np.array([1, 2], np.int64)])
    cases.op("cube", "ArrayFeatureExtractor", [integers(2, 2, 3, seed=6, kind=np.int64), (np.array([2, 1], np.int64),)])


def linear(cases):
    x = floats(6, 4, seed=7)
    for name, value in (("float", x), ("double", x.astype(np.float64)),
                        ("int64", integers(3, 4, seed=8, low=-4, high=5, kind=np.int64)),
                        ("int32", integers(3, 4, seed=8, low=-4, high=5))):
        weights = list(map(float, floats(8, seed=9)))
        cases.op(f"two_{name}", "LinearClassifier", [value], 2, coefficients=weights, intercepts=[0.1, -0.2], classlabels_ints=[4, 9])
        if name == "float":  # onnxruntime has no other type here
            cases.op(f"targets_{name}", "LinearRegressor", [value], coefficients=weights, intercepts=[0.1, -0.2], targets=2)
            cases.op(f"one_{name}", "LinearRegressor", [value], coefficients=weights[:4], intercepts=[0.3])
            cases.op(f"bare_{name}", "LinearRegressor", [value], coefficients=weights[:4])
    for transform in TRANSFORMS:
        scale = 0.05 if transform == "PROBIT" else 1.0
        weights = [float(w) for w in scale * floats(12, seed=10)]
        base = [0.5, 0.45, 0.55] if transform == "PROBIT" else [0.1, -0.2, 0.3]
        cases.op(f"three_{transform.lower()}", "LinearClassifier", [x], 2, coefficients=weights, intercepts=base,
                 classlabels_ints=[3, 1, 2], post_transform=transform, multi_class=1)
        if transform != "PROBIT":
            cases.op(f"shared_{transform.lower()}", "LinearClassifier", [x], 2, coefficients=weights[:4], intercepts=[0.1],
                     classlabels_ints=[-1, 1], post_transform=transform)
        cases.op(f"{transform.lower()}", "LinearRegressor", [x], coefficients=weights, intercepts=base, targets=3,
                 post_transform=transform)
        cases.op(f"single_{transform.lower()}", "LinearRegressor", [x], coefficients=weights[:4], intercepts=base[:1],
                 post_transform=transform)


def machines(cases):
    x = floats(7, 3, seed=11)
    random = np.random.default_rng(12)

    def numbers(*shape):
        return [float(v) for v in random.normal(0, 1, shape).ravel()]
    kernels = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.4, 0.5, 3.0], "RBF": [0.6, 0.0, 0.0], "SIGMOID": [0.3, 0.1, 0.0]}
    for kernel, parameters in kernels.items():
        common = dict(kernel_type=kernel, kernel_params=parameters)
        cases.op(kernel.lower(), "SVMRegressor", [x], coefficients=numbers(5), support_vectors=numbers(5, 3), n_supports=5,
                 rho=[0.2], **common)
        cases.op(f"{kernel.lower()}_outliers", "SVMRegressor", [x], coefficients=numbers(5), support_vectors=numbers(5, 3),
                 n_supports=5, rho=[0.1], one_class=1, **common)
        for classes, counts in ((2, [3, 2]), (3, [2, 3, 2]), (4, [1, 2, 2, 3])):
            pairs, vectors = classes * (classes - 1) // 2, sum(counts)
            machine = dict(coefficients=numbers(classes - 1, vectors), support_vectors=numbers(vectors, 3), rho=numbers(pairs),
                           vectors_per_class=counts, classlabels_ints=[10 * k for k in range(classes)], **common)
            cases.op(f"{kernel.lower()}_{classes}", "SVMClassifier", [x], 2, **machine)
            cases.op(f"{kernel.lower()}_{classes}_sure", "SVMClassifier", [x], 2, prob_a=[-abs(a) for a in numbers(pairs)],
                     prob_b=[0.1 * b for b in numbers(pairs)], **machine)
            if kernel == "RBF":
                for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
                    cases.op(f"rbf_{classes}_{transform.lower()}", "SVMClassifier", [x], 2, post_transform=transform, **machine)
    cases.op("double", "SVMClassifier", [x.astype(np.float64)], 2, coefficients=numbers(4), support_vectors=numbers(4, 3), rho=[0.3],
             vectors_per_class=[2, 2], classlabels_ints=[0, 1], kernel_type="RBF", kernel_params=[0.5, 0.0, 0.0])


def ensembles(cases):
    x, score = trees.tabular(300, 5, seed=13, missing=0.05)
    asked = x[:37]
    plain, missing = np.nan_to_num(asked), asked
    grown = trees.boost(x, score, 9, 4, 14, "squares")
    two = [t % 2 for t in range(len(grown))]
    for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"):
        for tracks in (False, True):
            cases.op(f"{mode[7:].lower()}_{'missing' if tracks else 'plain'}", "TreeEnsembleRegressor", [missing], n_targets=1,
                     **trees.attributes(grown, "target", [0] * len(grown), mode, tracks))
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        cases.op(f"{aggregate.lower()}", "TreeEnsembleRegressor", [plain], n_targets=1, aggregate_function=aggregate,
                 base_values=[0.5], **trees.attributes(grown, "target", [0] * len(grown)))
        cases.op(f"{aggregate.lower()}_two", "TreeEnsembleRegressor", [plain], n_targets=2, aggregate_function=aggregate,
                 base_values=[0.5, -1.0], **trees.attributes(grown, "target", two))
    for transform in TRANSFORMS:
        low = [trees.scaled(t, 0.02) for t in grown]
        cases.op(f"{transform.lower()}", "TreeEnsembleRegressor", [plain], n_targets=1, post_transform=transform,
                 base_values=[0.5], **trees.attributes(low, "target", [0] * len(grown)))
        cases.op(f"{transform.lower()}_two", "TreeEnsembleRegressor", [plain], n_targets=2, post_transform=transform,
                 base_values=[0.5, 0.4], **trees.attributes(low, "target", two))
        three = [t % 3 for t in range(len(grown))]
        cases.op(f"{transform.lower()}_three", "TreeEnsembleClassifier", [plain], 2, post_transform=transform,
                 base_values=[0.5, 0.5, 0.4], classlabels_int64s=[7, 5, 9], **trees.attributes(low, "class", three))
        if transform != "PROBIT":
            shares = [trees.scaled(t, 0.1) for t in trees.boost(x, score, 3, 3, 15, "squares")]
            for name, made in (("mixed", shares), ("positive", [absolute(t) for t in shares])):
                cases.op(f"{transform.lower()}_binary_{name}", "TreeEnsembleClassifier", [plain], 2, post_transform=transform,
                         classlabels_int64s=[-1, 1], **trees.attributes(made, "class", [0] * 3))
                cases.op(f"{transform.lower()}_binary_{name}_base", "TreeEnsembleClassifier", [plain], 2,
                         post_transform=transform, base_values=[0.2], classlabels_int64s=[-1, 1],
                         **trees.attributes(made, "class", [0] * 3))
    cases.op("second_class", "TreeEnsembleClassifier", [plain], 2, classlabels_int64s=[4, 6], post_transform="LOGISTIC",
             **trees.attributes(grown, "class", [1] * len(grown)))
    random = np.random.default_rng(16)
    forest = [trees.leaves_as_shares(t, 3, random) for t in grown]
    cases.op("shares", "TreeEnsembleClassifier", [plain], 2, classlabels_int64s=[0, 1, 2],
             **trees.attributes([trees.scaled(t, 1 / len(grown)) for t in forest], "class", "all"))
    attributes = trees.attributes(grown, "target", [0] * len(grown))
    equal = dict(attributes, nodes_modes=["BRANCH_EQ" if m != "LEAF" and i % 3 == 0 else "BRANCH_NEQ" if m != "LEAF" and i % 3 == 1
                                          else m for i, m in enumerate(attributes["nodes_modes"])],
                 nodes_values=[float(round(v)) for v in attributes["nodes_values"]])
    cases.op("equality", "TreeEnsembleRegressor", [np.where(np.isnan(missing), missing, np.round(missing))], n_targets=1, **equal)
    doubles = dict(attributes)
    for name in ("nodes_values", "nodes_hitrates", "target_weights"):
        values = [v + 1e-12 for v in doubles.pop(name)]
        doubles[f"{name}_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(values)], values)
    cases.op("double_tensors", "TreeEnsembleRegressor", [plain.astype(np.float64)], n_targets=1, **doubles)
    cases.op("double", "TreeEnsembleRegressor", [plain.astype(np.float64)], n_targets=1, **attributes)
    whole = np.round(3 * plain)
    for kind in (np.int64, np.int32):
        cases.op(np.dtype(kind).name, "TreeEnsembleClassifier", [whole.astype(kind)], 2, classlabels_int64s=[0, 1],
                 **trees.attributes(grown, "class", [0] * len(grown)))
    cases.op("one_leaf", "TreeEnsembleRegressor", [plain], n_targets=1, **trees.attributes([0.25, grown[0]], "target", [0, 0]))
    cases.op("one_row", "TreeEnsembleRegressor", [plain[:1]], n_targets=1, **attributes)
    cases.op("no_rows", "TreeEnsembleRegressor", [plain[:0]], n_targets=1, **attributes)
    for kind in (np.float32, np.float64):
        cases.op(f"new_{np.dtype(kind).name}", "TreeEnsemble", [missing.astype(kind)], version=5, opset=21,
                 **trees.forest5(grown, kind))
        cases.op(f"new_leaf_{np.dtype(kind).name}", "TreeEnsemble", [missing.astype(kind)], version=5, opset=21,
                 **trees.forest5([0.5, grown[1]], kind))
    for number, aggregate in enumerate(("average", "sum", "min", "max")):
        cases.op(f"new_{aggregate}", "TreeEnsemble", [plain], version=5, opset=21, aggregate_function=number,
                 **trees.forest5(grown))
    sets = {0: [1.0, -1.0], 3: [0.0], 5: [2.0, 0.0, -2.0, 1.0]}
    cases.op("new_members", "TreeEnsemble", [np.round(plain)], version=5, opset=21, **trees.forest5(grown[:1], members=sets))


def absolute(tree):
    if not isinstance(tree, trees.Split):
        return abs(tree) + 0.05
    return trees.Split(tree.feature, tree.threshold, tree.missing_left, absolute(tree.left), absolute(tree.right))


class Export:
    """A model as an exporter writes it: nodes of both domains, the batch open, a map at the end."""

    def __init__(self, name, inputs, opset=15, version=3):
        self.case = Case(f"export_{name}", opset, [], inputs, {}, [], domains={ML: version},
                         symbols={key: ["N", *value.shape[1:]] for key, value in inputs.items()})

    def node(self, operator, inputs, outputs, domain=ML, **attributes):
        self.case.nodes.append(helper.make_node(operator, inputs, outputs, f"{operator}{len(self.case.nodes)}", domain=domain,
                                                **attributes))

    def onnx(self, operator, inputs, outputs, **attributes):
        self.node(operator, inputs, outputs, domain="", **attributes)

    def constant(self, name, values, kind):
        self.case.constants[name] = np.array(values, kind)
        return name

    def zip_map(self, probabilities, labels, texts=None, label="output_label"):
        """The last step of skl2onnx: maps of the probabilities. `texts` name the classes in place of whole numbers."""
        self.case.outputs = [label, probabilities]

        def finish(model, outputs):
            graph = model.graph
            keys = {"classlabels_strings": texts} if texts else {"classlabels_int64s": labels}
            graph.node.append(helper.make_node("ZipMap", [probabilities], ["output_probability"], "ZipMap", domain=ML, **keys))
            del graph.output[1:]
            key = TensorProto.STRING if texts else TensorProto.INT64
            entry = graph.output.add(name="output_probability").type.sequence_type.elem_type.map_type
            entry.key_type = key
            entry.value_type.tensor_type.elem_type = TensorProto.FLOAT
            if not texts:
                return model, [*outputs, np.tile(np.array(labels, np.int64), (len(outputs[1]), 1))]
            graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
            for node in graph.node:
                for attribute in list(node.attribute):
                    if node.op_type != "ZipMap" and attribute.name.startswith("classlabels_int"):
                        node.attribute.remove(attribute)
                        node.attribute.append(helper.make_attribute("classlabels_strings", texts))
            names = np.array(texts, np.object_)
            return model, [names[outputs[0]], outputs[1], np.tile(names, (len(outputs[1]), 1))]
        self.case.finish = finish
        return self.case


def gradient_boosting():
    x, score = trees.tabular(400, 8, seed=20)
    grown = trees.boost(x, (score > 0.2).astype(np.int64), 20, 3, 21, "logistic")
    made = Export("sklearn_gradient_boosting", {"X": x[:24]})
    made.node("TreeEnsembleClassifier", ["X"], ["label", "probabilities"], base_values=[-0.15], classlabels_int64s=[0, 1],
              post_transform="LOGISTIC", **trees.attributes(grown, "class", [0] * len(grown), missing=False))
    made.onnx("Cast", ["label"], ["output_label"], to=TensorProto.INT64)
    return made.zip_map("probabilities", [0, 1])


def random_forest(texts=None):
    x, score = trees.tabular(400, 6, seed=22)
    random = np.random.default_rng(23)
    grown = [trees.scaled(trees.leaves_as_shares(t, 3, random), 1 / 12) for t in trees.boost(x, score, 12, 5, 24, "squares")]
    made = Export("sklearn_random_forest_texts" if texts else "sklearn_random_forest", {"X": x[:24]})
    made.node("TreeEnsembleClassifier", ["X"], ["output_label", "probabilities"], classlabels_int64s=[0, 1, 2],
              post_transform="NONE", **trees.attributes(grown, "class", "all", missing=False))
    return made.zip_map("probabilities", [0, 1, 2], texts)


def lightgbm(classes):
    x, score = trees.tabular(400, 7, seed=25, missing=0.1)
    loss = "logistic" if classes == 2 else "softmax"
    grown = trees.boost(x, trees.classes_of(score, classes), 15 if classes == 2 else 8, 4, 26, loss)
    made = Export(f"lightgbm_{classes}", {"input": x[:24]}, opset=9, version=1)
    ids = [0] * len(grown) if classes == 2 else [t % classes for t in range(len(grown))]
    made.node("TreeEnsembleClassifier", ["input"], ["label_tensor", "probability_tensor"], classlabels_int64s=list(range(classes)),
              post_transform="LOGISTIC" if classes == 2 else "SOFTMAX", **trees.attributes(grown, "class", ids))
    made.onnx("Cast", ["label_tensor"], ["label"], to=TensorProto.INT64)
    return made.zip_map("probability_tensor", list(range(classes)), label="label")


def xgboost(classes):
    x, score = trees.tabular(400, 7, seed=27, missing=0.1)
    loss = {0: "squares", 2: "logistic"}.get(classes, "softmax")
    grown = trees.boost(x, score if classes == 0 else trees.classes_of(score, classes), 8, 4, 28, loss)
    common = dict(mode="BRANCH_LT", breadth_first=True)
    made = Export(f"xgboost_{classes}", {"float_input": x[:24]}, opset=15, version=1)
    if classes == 0:
        made.node("TreeEnsembleRegressor", ["float_input"], ["variable"], n_targets=1, base_values=[0.5],
                  **trees.attributes(grown, "target", [0] * len(grown), **common))
        made.case.outputs = ["variable"]
        return made.case
    ids = [t % classes for t in range(len(grown))] if classes > 2 else [0] * len(grown)
    made.node("TreeEnsembleClassifier", ["float_input"], ["label", "probabilities"], classlabels_int64s=list(range(classes)),
              post_transform="SOFTMAX" if classes > 2 else "LOGISTIC", base_values=[0.1] * (classes if classes > 2 else 1),
              **trees.attributes(grown, "class", ids, **common))
    made.case.outputs = ["label", "probabilities"]
    return made.case


def pipeline():
    """Numbers with holes and categories, as skl2onnx writes a ColumnTransformer before a logistic regression."""
    random = np.random.default_rng(29)
    numbers = trees.tabular(24, 5, seed=30, missing=0.2)[0][:, :4]
    kinds = random.integers(0, 4, (24, 1)).astype(np.int64)
    made = Export("sklearn_pipeline", {"numbers": numbers, "kinds": kinds})
    made.node("Imputer", ["numbers"], ["filled"], imputed_value_floats=[0.1, -0.2, 0.3, 0.0], replaced_value_float=float("nan"))
    made.node("Scaler", ["filled"], ["scaled"], offset=[0.1, 0.2, -0.1, 0.0], scale=[1.5, 0.9, 1.1, 0.7])
    made.node("OneHotEncoder", ["kinds"], ["encoded"], cats_int64s=[0, 1, 2], zeros=1)
    made.onnx("Reshape", ["encoded", made.constant("flat", [-1, 3], np.int64)], ["columns"])
    made.onnx("Concat", ["scaled", "columns"], ["all"], axis=1)
    made.node("LinearClassifier", ["all"], ["label", "raw"], coefficients=[float(v) for v in random.normal(0, 1, 21)],
              intercepts=[0.1, -0.3, 0.2], classlabels_ints=[0, 1, 2], multi_class=0, post_transform="LOGISTIC")
    made.node("Normalizer", ["raw"], ["probabilities"], norm="L1")
    made.onnx("Cast", ["label"], ["output_label"], to=TensorProto.INT64)
    return made.zip_map("probabilities", [0, 1, 2])


def nearest_mean():
    """Labels by an ArgMax over scores: how skl2onnx writes naive Bayes, neighbours and neural networks."""
    random = np.random.default_rng(31)
    made = Export("sklearn_argmax", {"X": floats(24, 5, seed=32)})
    made.onnx("MatMul", ["X", made.constant("means", random.normal(0, 1, (5, 3)), np.float32)], ["scores"])
    made.onnx("Softmax", ["scores"], ["probabilities"], axis=1)
    made.onnx("ArgMax", ["probabilities"], ["place"], axis=1)
    made.node("ArrayFeatureExtractor", [made.constant("classes", [3, 5, 8], np.int32), "place"], ["picked"])
    made.onnx("Cast", ["picked"], ["cast"], to=TensorProto.INT64)
    made.onnx("Reshape", ["cast", made.constant("flat", [-1], np.int64)], ["output_label"])
    return made.zip_map("probabilities", [3, 5, 8])


def machine():
    random = np.random.default_rng(33)
    made = Export("sklearn_svc", {"X": floats(24, 4, seed=34)})
    made.node("SVMClassifier", ["X"], ["label", "probabilities"], classlabels_ints=[0, 1, 2], vectors_per_class=[4, 5, 3],
              support_vectors=[float(v) for v in random.normal(0, 1, 48)], coefficients=[float(v) for v in random.normal(0, 1, 24)],
              rho=[0.1, -0.2, 0.3], prob_a=[-1.2, -0.9, -1.5], prob_b=[0.1, 0.0, -0.1], kernel_type="RBF",
              kernel_params=[0.25, 0.0, 3.0], post_transform="NONE")
    made.onnx("Cast", ["label"], ["output_label"], to=TensorProto.INT64)
    return made.zip_map("probabilities", [0, 1, 2])


def all_cases():
    cases = Collector()
    for family in (features, categories, linear, machines, ensembles):
        family(cases)
    exports = [gradient_boosting(), random_forest(), random_forest(["cat", "dog", "owl"]), lightgbm(2), lightgbm(4), xgboost(0),
               xgboost(2), xgboost(3), pipeline(), nearest_mean(), machine()]
    return cases.list + exports
