"""Cases of texts: what makes numbers of them and of numbers texts, what compares, cuts and counts them."""
import numpy as np
from onnx import TensorProto, helper

from classic_cases import Collector
from harness import Cases, Const


def texts(*values, shape=None):
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array if shape is None else array.reshape(shape)


def casts(cases):
    numbers = {"float": np.array([0, 1, -1.5, 1 / 3, 3.14159274, 1e10, 1e-7, 1.5e38, 123456789, np.nan, np.inf, -np.inf, -0.0], np.float32),
               "double": np.array([0.1, 1e17, -2.5e-300, 12345678], np.float64),
               "int64": np.array([0, -5, 2 ** 53, -2 ** 63], np.int64), "uint8": np.array([0, 200], np.uint8),
               "bool": np.array([False, True])}
    for name, values in numbers.items():
        cases.op(f"from_{name}", 19, "Cast", [values], to=TensorProto.STRING)
    real = texts("1", "-1.5", " 3 ", "+5", "1e3", "NaN", "INF", "-inf", "5.", ".5", "-0", shape=(11, 1))
    whole = texts("1", "-2", " 3", "+5", "2147483647", "3.9")
    cases.op("to_float", 19, "Cast", [real], to=TensorProto.FLOAT)
    cases.op("to_double", 13, "Cast", [real], to=TensorProto.DOUBLE)
    cases.op("to_int32", 19, "Cast", [whole], to=TensorProto.INT32)
    cases.op("to_int64", 9, "Cast", [whole], to=TensorProto.INT64)
    cases.op("to_bool", 19, "Cast", [texts("1", "0", "7")], to=TensorProto.BOOL)
    cases.op("text_like", 19, "CastLike", [np.array([1, 2], np.int32), texts("x")])


def movements(cases):
    x = texts("a", "", "ccc", "d", "\u00e9", "f", shape=(2, 3))
    cases.op("text", 19, "Identity", [x])
    cases.op("text", 18, "Reshape", [x, Const([3, -1])])
    cases.op("text", 18, "Transpose", [x], perm=[1, 0])
    cases.op("text", 18, "Concat", [x, texts("x", "y", shape=(2, 1))], axis=1)
    cases.op("text", 18, "Gather", [x, Const([2, 0, 2])], axis=1)
    cases.op("text_at_run", 18, "Gather", [Const(["zero", "one", "two"], np.object_), np.array([2, 1, 2], np.int64)], axis=0)
    cases.op("text", 18, "Slice", [x, Const([1]), Const([3]), Const([1])])
    cases.op("text", 18, "Split", [x, Const([1, 2])], 2, axis=1)
    cases.op("text", 18, "Squeeze", [texts("a", "b", shape=(1, 2)), Const([0])])
    cases.op("text", 18, "Unsqueeze", [texts("a", "b"), Const([0, 2])])
    cases.op("text", 18, "Expand", [texts("a", "b", shape=(2, 1)), Const([2, 3])])
    cases.op("text", 18, "Tile", [texts("a", "b"), Const([3])])
    cases.op("text", 18, "Where", [np.array([[True], [False]]), texts("a", "b"), texts("c", "d")])
    cases.op("text", 18, "Shape", [x])
    cases.op("text", 11, "Compress", [x, np.array([True, False, True])], axis=1)
    for opset, right in ((19, texts("a", "", "ccc")), (19, texts("a", "", "ccC", "d", "e", "f", shape=(2, 3)))):
        cases.op(f"text_{right.ndim}", opset, "Equal", [x, right])


def cuts(cases):
    cases.op("wide", 20, "StringConcat", [texts("a", "b", shape=(2, 1)), texts("1", "22", "")])
    cases.op("same", 20, "StringConcat", [texts("a", ""), texts("", "\u00e9")])
    cases.op("blanks", 20, "StringSplit", [texts("a b c", " x  y ", "", " ", "q")], 2)
    cases.op("comma", 20, "StringSplit", [texts("a,b,,c", ",", "", "x", shape=(2, 2))], 2, delimiter=",")
    cases.op("most", 20, "StringSplit", [texts("a b c d", "e f")], 2, maxsplit=1)
    cases.op("most_comma", 20, "StringSplit", [texts("a,b,c,d", ",,")], 2, maxsplit=2, delimiter=",")
    cases.op("long", 20, "StringSplit", [texts("a--b-c")], 2, delimiter="--")
    words = texts("Monday", "monday", "tuesday")
    cases.op("case", 19, "StringNormalizer", [words], is_case_sensitive=1, stopwords=["monday"])
    cases.op("all_go", 19, "StringNormalizer", [words.reshape(1, 3)], is_case_sensitive=1,
             stopwords=["Monday", "monday", "tuesday"])
    cases.op("keeps_all", 11, "StringNormalizer", [words], is_case_sensitive=1)


def counts(cases):
    row = texts("a", "b", "c", "a", "b", "x", "c")
    pool = {"pool_strings": ["a", "c", "a", "b", "b", "c", "a", "b", "c"], "ngram_counts": [0, 2, 6], "ngram_indexes": [3, 0, 1, 4, 2]}
    weights = {"weights": [0.5, 2.0, 3.0, 0.25, 8.0]}
    for mode in ("TF", "IDF", "TFIDF"):
        for shortest, longest, skips in ((1, 1, 0), (1, 2, 0), (2, 2, 3), (1, 3, 2), (3, 3, 1)):
            name = f"{mode.lower()}_{shortest}{longest}{skips}"
            settings = {"mode": mode, "min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": skips}
            cases.op(f"texts_{name}", 9, "TfIdfVectorizer", [row], **settings, **pool, **weights)
            numbers = {**pool, "pool_int64s": [1, 3, 1, 2, 2, 3, 1, 2, 3]}
            del numbers["pool_strings"]
            x = np.array([[1, 2, 3, 1, 2, 9, 3], [3, 3, 1, 1, 2, 2, 3]], np.int64)
            cases.op(f"numbers_{name}", 9, "TfIdfVectorizer", [x.astype(np.int32) if skips else x], **settings, **numbers)


def labels(cases):
    words = texts("a", "b", "c", shape=(3, 1))
    numbers = np.array([[1], [2], [3]], np.int64)
    cases.op("text_to_int", "LabelEncoder", [words], version=2, keys_strings=["b", "a"], values_int64s=[20, 10], default_int64=9)
    cases.op("text_to_float", "LabelEncoder", [words], version=2, keys_strings=["a"], values_floats=[1.5], default_float=-2.0)
    cases.op("text_to_text", "LabelEncoder", [words], version=2, keys_strings=["a", "b"], values_strings=["x", ""])
    cases.op("int_to_text", "LabelEncoder", [numbers], version=2, keys_int64s=[1, 2], values_strings=["one", "two"], default_string="?")
    cases.op("float_to_text", "LabelEncoder", [numbers.astype(np.float32)], version=2, keys_floats=[1.0, 3.0], values_strings=["one", "three"])
    cases.op("first_to_int", "LabelEncoder", [words], version=1, classes_strings=["c", "a"], default_int64=-5)
    cases.op("first_to_text", "LabelEncoder", [np.array([0, 1, 2, -1], np.int64)], version=1, classes_strings=["c", "a"], default_string="?")
    tensor = [helper.make_tensor(name, TensorProto.STRING, [len(values)], values)
              for name, values in (("k", [b"a", b"b"]), ("v", [b"x", b"y"]), ("d", [b"zz"]))]
    cases.op("text_tensors", "LabelEncoder", [words], version=4, keys_tensor=tensor[0], values_tensor=tensor[1],
             default_tensor=tensor[2])
    mapper = {"cats_strings": ["a", "b"], "cats_int64s": [5, 6]}
    cases.op("to_int", "CategoryMapper", [words], version=1, **mapper)
    cases.op("to_text", "CategoryMapper", [numbers + 4], version=1, default_string="other", **mapper)
    cases.op("text", "OneHotEncoder", [words], version=1, cats_strings=["a", "c"], zeros=1)
    cases.op("text", "ArrayFeatureExtractor", [words.reshape(1, 3), (np.array([2, 0], np.int64),)], version=1)


def all_cases():
    cases, classic = Cases(), Collector()
    for family in (casts, movements, cuts, counts):
        family(cases)
    labels(classic)
    return cases.list + classic.list
