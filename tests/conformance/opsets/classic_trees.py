"""Small ensembles of trees: grown here by gradient boosting, and written as the exporters of scikit-learn, LightGBM and
XGBoost write them (names of attributes, order of nodes, tests of nodes, where a missing value goes)."""
import dataclasses

import numpy as np


@dataclasses.dataclass
class Split:
    feature: int
    threshold: float
    missing_left: bool
    left: object  # a Split, or the values of a leaf
    right: object


def tabular(rows, features, seed, missing=0.0):
    """Rows of features with structure, and a score for each."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, (rows, features)).astype(np.float32)
    score = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.5 * (x[:, 3] > 0.3) * x[:, 4]
    x[random.uniform(size=x.shape) < missing] = np.nan
    return x, score


def grow(x, gradients, hessians, depth, random, penalty=1.0):
    """A tree that lowers a loss with these derivatives: the exact gain, tried at some thresholds of each feature."""
    leaf = -gradients.sum() / (hessians.sum() + penalty)
    if depth == 0 or len(x) < 8:
        return float(leaf)
    best, found = 1e-6, None
    parent = gradients.sum() ** 2 / (hessians.sum() + penalty)
    for feature in range(x.shape[1]):
        values = x[:, feature]
        known = values[~np.isnan(values)]
        if len(known) == 0:
            continue
        for threshold in np.quantile(known, random.uniform(0.05, 0.95, 6)).astype(np.float32):
            for missing_left in (False, True):
                left = (values <= threshold) | (np.isnan(values) & missing_left)
                if not 4 <= left.sum() <= len(x) - 4:
                    continue
                gain = sum(gradients[side].sum() ** 2 / (hessians[side].sum() + penalty) for side in (left, ~left)) - parent
                if gain > best:
                    best, found = gain, (feature, float(threshold), missing_left, left)
    if found is None:
        return float(leaf)
    feature, threshold, missing_left, left = found
    return Split(feature, threshold, missing_left,
                 grow(x[left], gradients[left], hessians[left], depth - 1, random, penalty),
                 grow(x[~left], gradients[~left], hessians[~left], depth - 1, random, penalty))


def evaluate(tree, row):
    while isinstance(tree, Split):
        value = row[tree.feature]
        left = tree.missing_left if np.isnan(value) else value <= tree.threshold
        tree = tree.left if left else tree.right
    return tree


def scaled(tree, by):
    if not isinstance(tree, Split):
        return tree * by
    return dataclasses.replace(tree, left=scaled(tree.left, by), right=scaled(tree.right, by))


def boost(x, targets, trees, depth, seed, loss, rate=0.3):
    """`loss`: "squares", "logistic" or "softmax" (targets are classes, and trees of the classes follow each other)."""
    random = np.random.default_rng(seed)
    classes = int(targets.max()) + 1 if loss == "softmax" else 1
    scores = np.zeros((len(x), classes))
    grown = []
    for _ in range(trees):
        if loss == "squares":
            gradients, hessians = scores - targets[:, None], np.ones_like(scores)
        elif loss == "logistic":
            p = 1 / (1 + np.exp(-scores))
            gradients, hessians = p - targets[:, None], p * (1 - p)
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            gradients, hessians = p - np.eye(classes)[targets], p * (1 - p)
        for k in range(classes):
            tree = scaled(grow(x, gradients[:, k], hessians[:, k], depth, random), rate)
            grown.append(tree)
            scores[:, k] += [evaluate(tree, row) for row in x]
    return grown


def classes_of(score, classes):
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)).astype(np.int64)


def numbered(tree, breadth_first):
    """(node, children's numbers) in the order of the numbers."""
    nodes, children = [tree], {}
    at = 0
    if breadth_first:
        while at < len(nodes):
            if isinstance(nodes[at], Split):
                children[at] = (len(nodes), len(nodes) + 1)
                nodes += [nodes[at].left, nodes[at].right]
            at += 1
        return nodes, children
    nodes = []

    def visit(node):
        own = len(nodes)
        nodes.append(node)
        if isinstance(node, Split):
            left = visit(node.left)
            children[own] = (left, visit(node.right))
        return own
    visit(tree)
    return nodes, children


def attributes(trees, prefix, ids, mode="BRANCH_LEQ", missing=True, breadth_first=False, hit_rates=True):
    """The attributes of an ensemble. `ids`: of each tree the class or target that its leaves are for, or "all": a leaf has
    one weight for each class."""
    lists = {f"nodes_{name}": [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                                             "falsenodeids", "missing_value_tracks_true", "hitrates")}
    weights = {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(trees):
        nodes, children = numbered(tree, breadth_first)
        for i, node in enumerate(nodes):
            split = isinstance(node, Split)
            left, right = children.get(i, (0, 0))
            swap = mode in ("BRANCH_GT", "BRANCH_GTE")  # the true side is the right one
            row = (number, i, node.feature if split else 0, mode if split else "LEAF", node.threshold if split else 0.0,
                   right if swap else left, left if swap else right,
                   int(split and node.missing_left != swap), 1.0)
            for name, value in zip(lists, row):
                lists[name].append(value)
            if split:
                continue
            pairs = enumerate(node) if ids == "all" else [(ids[number], node)]
            for target, weight in pairs:
                for name, value in zip(weights, (number, i, int(target), float(weight))):
                    weights[name].append(value)
    if not missing:
        del lists["nodes_missing_value_tracks_true"]
    if not hit_rates:
        del lists["nodes_hitrates"]
    return {**lists, **weights}


def leaves_as_shares(tree, classes, random):
    """Leaves as a random forest's: a probability for each class."""
    if isinstance(tree, Split):
        return dataclasses.replace(tree, left=leaves_as_shares(tree.left, classes, random),
                                   right=leaves_as_shares(tree.right, classes, random))
    return random.dirichlet(np.full(classes, 0.4))


def forest5(trees, kind=np.float32, members=None):
    """Attributes of TreeEnsemble (ai.onnx.ml 5) for trees of one target; `members`: by place of a node, a set that stands
    in place of its threshold."""
    from onnx import TensorProto, helper
    members = members or {}
    lists = {name: [] for name in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs",
                                   "nodes_falseleafs", "nodes_missing_value_tracks_true", "leaf_targetids", "tree_roots")}
    splits, modes, weights, sets = [], [], [], []

    def leaf(value):
        weights.append(value)
        lists["leaf_targetids"].append(0)
        return len(weights) - 1

    def visit(node):
        own = len(splits)
        splits.append(node.threshold)
        modes.append(6 if own in members else 0)
        sets.extend(members.get(own, []) + [np.nan] if own in members else [])
        lists["nodes_featureids"].append(node.feature)
        lists["nodes_missing_value_tracks_true"].append(int(node.missing_left))
        for name in ("true", "false"):
            lists[f"nodes_{name}nodeids"].append(0)
            lists[f"nodes_{name}leafs"].append(0)
        for name, child in (("true", node.left), ("false", node.right)):
            place = visit(child) if isinstance(child, Split) else leaf(child)
            lists[f"nodes_{name}nodeids"][own] = place
            lists[f"nodes_{name}leafs"][own] = int(not isinstance(child, Split))
        return own
    for tree in trees:
        if not isinstance(tree, Split):  # a tree that is one leaf has a node with the same leaf on both sides
            place = leaf(tree)
            lists["tree_roots"].append(len(splits))
            splits.append(0.0)
            modes.append(0)
            for name, value in (("nodes_featureids", 0), ("nodes_missing_value_tracks_true", 0), ("nodes_truenodeids", place),
                                ("nodes_falsenodeids", place), ("nodes_trueleafs", 1), ("nodes_falseleafs", 1)):
                lists[name].append(value)
            continue
        lists["tree_roots"].append(visit(tree))
    number = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}[kind]

    def tensor(name, values, kind_of=number):
        return helper.make_tensor(name, kind_of, [len(values)], values)
    made = {**lists, "nodes_splits": tensor("splits", splits), "leaf_weights": tensor("weights", weights),
            "nodes_modes": tensor("modes", modes, TensorProto.UINT8), "n_targets": 1}
    if members:
        made["membership_values"] = tensor("members", sets)
    return made
