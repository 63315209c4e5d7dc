"""Cases of the operators that optimised files contain: those of the domain com.microsoft, and the normalisations that its
optimiser writes with the default domain."""
import numpy as np

from harness import Const, floats, integers


def fused(cases, name, operator, values, opset=13, **more):
    cases.op(name, opset, operator, values, domain="com.microsoft", **more)


def weights(*shape, seed=0):
    return Const(floats(*shape, seed=seed, low=-0.5, high=0.5), np.float32)


def gelu(cases):
    x, bias = floats(2, 3, 8, seed=300, low=-4), weights(8, seed=301)
    half = x.astype(np.float16)
    fused(cases, "plain", "BiasGelu", [x, bias])
    fused(cases, "newer", "BiasGelu", [x, bias], opset=20)
    fused(cases, "plain", "Gelu", [x])
    fused(cases, "plain", "FastGelu", [x])
    fused(cases, "bias", "FastGelu", [x, bias])
    fused(cases, "plain", "QuickGelu", [x])
    fused(cases, "alpha", "QuickGelu", [x], alpha=0.8)
    fused(cases, "float16", "FastGelu", [half])


def normalisations(cases):
    x, skip, gamma, beta, bias = (floats(2, 3, 8, seed=310), floats(2, 3, 8, seed=311), weights(8, seed=312), weights(8, seed=313),
                                  weights(8, seed=314))
    row = floats(1, 3, 8, seed=315), floats(3, 8, seed=316)
    for opset in (11, 13, 17):
        cases.op("optimised", opset, "LayerNormalization", [x, gamma, beta], axis=-1, epsilon=1e-5)
        cases.op("plain", opset, "SimplifiedLayerNormalization", [x, gamma], axis=-1, epsilon=1e-5, stash_type=1)
    cases.op("axis", 13, "SimplifiedLayerNormalization", [x, weights(3, 8, seed=317)], axis=1, epsilon=1e-3, stash_type=1)
    cases.op("deviation", 13, "SimplifiedLayerNormalization", [x, gamma], outputs=2, axis=-1, epsilon=1e-5, stash_type=1)
    for operator, shift in (("SkipLayerNormalization", [beta]), ("SkipSimplifiedLayerNormalization", [])):
        fused(cases, "plain", operator, [x, skip, gamma, *shift], epsilon=1e-5)
        fused(cases, "default_epsilon", operator, [x * 1e-5, skip * 1e-5, gamma, *shift])
        fused(cases, "bias", operator, [x, skip, gamma, *shift, bias], epsilon=1e-5)
        fused(cases, "sum", operator, [x, skip, gamma, *shift], outputs=["y", "", "", "sum"], epsilon=1e-5)
        fused(cases, "bias_sum", operator, [x, skip, gamma, *shift, bias], outputs=["y", "", "", "sum"], epsilon=1e-5)
        fused(cases, "skip_row", operator, [x, row[0], gamma, *shift], epsilon=1e-5)
        fused(cases, "skip_matrix", operator, [x, row[1], gamma, *shift], epsilon=1e-5)
        fused(cases, "two_dimensions", operator, [x[0], skip[0], gamma, *shift], epsilon=1e-5)
    fused(cases, "no_beta_bias", "SkipLayerNormalization", [x, skip, gamma, None, bias], epsilon=1e-5)
    fused(cases, "no_beta", "SkipLayerNormalization", [x, skip, gamma], epsilon=1e-5)
    fused(cases, "float16", "SkipLayerNormalization", [x.astype(np.float16), skip.astype(np.float16), Const(gamma.array, np.float16),
                                                       Const(beta.array, np.float16)], epsilon=1e-5)


def embeddings(cases):
    ids, segments = integers(2, 5, seed=320, low=0, high=9), integers(2, 5, seed=321, low=0, high=2)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    words, places, kinds = weights(9, 8, seed=322), weights(7, 8, seed=323), weights(2, 8, seed=324)
    gamma, beta = weights(8, seed=325), weights(8, seed=326)
    table = [words, places, kinds, gamma, beta]
    alone = [words, places, None, gamma, beta]
    fused(cases, "plain", "EmbedLayerNormalization", [ids, segments, *table], outputs=2)
    fused(cases, "mask", "EmbedLayerNormalization", [ids, segments, *table, mask], outputs=2)
    fused(cases, "mask_newer", "EmbedLayerNormalization", [ids, segments, *table, mask], opset=20, outputs=2)
    fused(cases, "no_segments", "EmbedLayerNormalization", [ids, None, *alone, mask], outputs=2, epsilon=1e-5)
    fused(cases, "sum", "EmbedLayerNormalization", [ids, segments, *table, mask], outputs=3)
    fused(cases, "sum_alone", "EmbedLayerNormalization", [ids, None, *alone], outputs=["y", "", "sum"], mask_index_type=0)
    fused(cases, "places", "EmbedLayerNormalization", [ids, segments, *table, None, integers(2, 5, seed=327, low=0, high=7)],
          outputs=2)
    fused(cases, "places_row", "EmbedLayerNormalization", [ids, segments, *table, mask, integers(1, 5, seed=328, low=0, high=7)],
          outputs=2)


def in_heads(rows, heads):
    batch, length, width = rows.shape
    return rows.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def attended(joined, heads, present=None, added=0):
    """Attention of queries, keys and values in one row each, or of keys and values that include a past."""
    q, k, v = (in_heads(part.astype(np.float64), heads) for part in np.split(joined, 3, -1))
    if present is not None:
        k, v = present.astype(np.float64)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    y = weight / weight.sum(-1, keepdims=True) @ v
    return y.transpose(0, 2, 1, 3).reshape(joined.shape[0], joined.shape[1], -1).astype(np.float32)


def attention(cases):
    batch, length, size, heads = 2, 4, 12, 3
    x, w, b = floats(batch, length, size, seed=330), weights(size, 3 * size, seed=331), weights(3 * size, seed=332)
    raw = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    past = floats(2, batch, heads, 3, size // heads, seed=333)
    bias = floats(batch, heads, length, length, seed=334)

    def case(name, values, **more):
        fused(cases, name, "Attention", values, num_heads=heads, **more)

    case("plain", [x, w, b])
    # onnxruntime ends without a bias, and has no attention_bias beside a past: from the definition.
    case("no_bias", [x, w, None], expected=[attended(x @ w.array, heads)])
    case("newer", [x, w, b, raw], opset=20)
    case("scale", [x, w, b], scale=0.3)
    case("causal", [x, w, b], unidirectional=1)
    case("mask_keys", [x, w, b, raw])
    case("mask_keys_filter", [x, w, b, raw], mask_filter_value=-2.0)
    case("mask_keys_causal", [x, w, b, raw], unidirectional=1)
    case("mask_ends", [x, w, b, np.array([3, 2], np.int32)])
    case("mask_ends_and_starts", [x, w, b, np.array([4, 3, 1, 0], np.int32)])
    case("mask_none_seen", [x, w, b, np.array([[0, 0, 0, 0], [1, 0, 1, 0]], np.int32)])
    case("mask_queries", [x, w, b, np.tril(np.ones((batch, length, length), np.int32))])
    case("bias", [x, w, b, None, None, bias])
    case("bias_shared", [x, w, b, None, None, bias[:1, :1]])
    case("bias_mask", [x, w, b, raw, None, bias])
    case("bias_mask_shared", [x, w, b, raw, None, bias[:, :1]])
    case("widths", [x, weights(size, 12 + 12 + 6, seed=335), weights(30, seed=336)], qkv_hidden_sizes=[12, 12, 6])
    case("past", [x, w, b, None, past], outputs=2, unidirectional=1)
    case("past_mask", [x, w, b, np.array([[0, 1, 1, 1, 1, 1, 1], [1] * 7], np.int32), past], outputs=2, unidirectional=1)
    case("past_empty", [x, w, b, None, past[:, :, :, :0]], outputs=2, unidirectional=1)
    added = floats(1, heads, length, 7, seed=337)
    joined = x @ w.array + b.array
    present = np.concatenate([past, np.stack([in_heads(part, heads) for part in np.split(joined, 3, -1)[1:]])], 3)
    case("past_bias", [x, w, b, None, past, added], outputs=2, expected=[attended(joined, heads, present, added), present])
    case("present", [x, w, b], outputs=2)
    # From 8 queries on other kernels compute it.
    long = floats(batch, 12, size, seed=338)
    seen = np.array([[1] * 12, [1] * 9 + [0] * 3], np.int32)
    case("long", [long, w, b], outputs=2)
    case("long_mask", [long, w, b, seen], unidirectional=1)
    case("long_bias", [long, w, b, seen, None, floats(1, heads, 12, 12, seed=339)])


def many_heads(cases):
    batch, rows, keys, heads, size = 2, 3, 5, 2, 4
    width = heads * size
    q, k, v = floats(batch, rows, width, seed=340), floats(batch, keys, width, seed=341), floats(batch, keys, width, seed=342)
    same = floats(batch, rows, width, seed=343), floats(batch, rows, width, seed=344)
    past = floats(batch, heads, 4, size, seed=345), floats(batch, heads, 4, size, seed=346)
    bias = weights(3 * width, seed=347)
    raw = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)

    def case(name, values, **more):
        fused(cases, name, "MultiHeadAttention", values, num_heads=heads, **more)

    case("plain", [q, *same])
    case("cross", [q, k, v])
    case("newer", [q, k, v, bias, raw], opset=20)
    case("scale", [q, k, v], scale=0.25)
    case("causal", [q, *same], unidirectional=1)
    case("bias", [q, k, v, bias])
    case("mask_keys", [q, k, v, None, raw])
    case("mask_keys_filter", [q, k, v, None, raw], mask_filter_value=-1.5)
    case("mask_ends", [q, k, v, None, np.array([3, 5], np.int32)])
    case("mask_queries", [q, k, v, None, integers(batch, rows, keys, seed=348, low=0, high=2) | np.eye(rows, keys, dtype=np.int32)])
    case("scores_bias", [q, k, v, None, None, floats(batch, heads, rows, keys, seed=349)])
    case("scores_bias_shared", [q, k, v, bias, raw, floats(1, heads, rows, keys, seed=350)])
    case("past", [q, *same, bias, None, None, *past], outputs=3)
    case("past_causal", [q, *same, None, None, None, *past], outputs=3, unidirectional=1)
    case("past_mask", [q, *same, None, np.array([[0, 1, 1, 1, 1, 1, 1], [1] * 7], np.int32), None, *past], outputs=3)
    case("present", [q, *same], outputs=3)
    turned = [a.reshape(batch, keys, heads, size).transpose(0, 2, 1, 3).copy() for a in (k, v)]
    case("turned", [q, *turned])
    wide = floats(batch, keys, heads * 6, seed=351)
    case("wide_values", [q, k, wide])
    case("long", [floats(batch, 9, width, seed=352), k, wide, None, raw])
    case("long_turned", [floats(batch, 9, width, seed=352), *turned], outputs=3)
    case("one_query", [q[:, :1], same[0][:, :1], same[1][:, :1], bias, None, None, *past], outputs=3)


def rotary(cases):
    cos, sin = (Const(floats(16, 4, seed=seed, low=-1, high=1), np.float32) for seed in (420, 421))
    places = np.array([[3, 4, 5], [0, 7, 15]], np.int64)
    flat, turned = floats(2, 3, 24, seed=422), floats(2, 3, 3, 8, seed=423)
    for interleaved in (0, 1):
        fused(cases, f"flat_{interleaved}", "RotaryEmbedding", [flat, places, cos, sin], interleaved=interleaved)
        fused(cases, f"turned_{interleaved}", "RotaryEmbedding", [turned, places, cos, sin], interleaved=interleaved)
        fused(cases, f"first_{interleaved}", "RotaryEmbedding", [flat, np.array([5], np.int64), cos, sin], interleaved=interleaved)
    half = [Const(c.array[:, :2], np.float32) for c in (cos, sin)]
    fused(cases, "part", "RotaryEmbedding", [flat, places, *half], num_heads=3, rotary_embedding_dim=4)


def grouped(cases):
    batch, heads, shared, size = 2, 4, 2, 16
    cos, sin = (Const(floats(32, size // 2, seed=seed, low=-1, high=1), np.float32) for seed in (430, 431))

    def case(name, rows, past, lengths, values=3, tables=(), capacity=None, **more):
        seeds = iter(range(432, 440))
        width = heads * size if values == 3 else (heads + 2 * shared) * size
        new = [floats(batch, rows, width, seed=next(seeds))]
        new += [floats(batch, rows, shared * size, seed=next(seeds)) for _ in range(2)] if values == 3 else [None, None]
        cached = past if capacity is None else capacity
        caches = [floats(batch, shared, cached, size, seed=next(seeds)) for _ in range(2)]
        fused(cases, name, "GroupQueryAttention",
              [*new, *caches, np.array(lengths, np.int32), Const(past + rows, np.int32), *tables], outputs=3, num_heads=heads,
              kv_num_heads=shared, **more)

    case("prompt", 5, 0, [4, 4])
    case("prompt_shorter", 5, 0, [4, 2])
    case("next", 1, 6, [6, 6])
    case("scale", 1, 6, [6, 6], scale=0.2)
    case("softcap", 1, 6, [6, 6], softcap=1.5)
    case("packed", 1, 6, [6, 6], values=1)
    case("packed_prompt", 9, 0, [8, 8], values=1)
    case("rotary", 1, 6, [6, 6], tables=(cos, sin), do_rotary=1)
    case("rotary_prompt", 5, 0, [4, 4], tables=(cos, sin), do_rotary=1)
    case("rotary_interleaved", 1, 6, [6, 6], tables=(cos, sin), do_rotary=1, rotary_interleaved=1)
    case("rotary_packed", 1, 6, [6, 6], values=1, tables=(cos, sin), do_rotary=1)
    case("window", 1, 9, [9, 9], local_window_size=4)
    case("window_prompt", 9, 0, [8, 8], local_window_size=3)


def products(cases):
    a, b = floats(2, 3, 4, seed=360), floats(2, 4, 5, seed=361)
    turned = np.ascontiguousarray(b.swapaxes(1, 2))
    fused(cases, "plain", "FusedMatMul", [a, b])
    fused(cases, "alpha", "FusedMatMul", [a, b], alpha=0.125)
    fused(cases, "b_turned", "FusedMatMul", [a, turned], transB=1, alpha=2.0)
    fused(cases, "a_turned", "FusedMatMul", [np.ascontiguousarray(a.swapaxes(1, 2)), b], transA=1)
    fused(cases, "both_turned", "FusedMatMul", [np.ascontiguousarray(a.swapaxes(1, 2)), turned], transA=1, transB=1)
    fused(cases, "constant", "FusedMatMul", [a, weights(4, 5, seed=362)], alpha=0.5)
    fused(cases, "constant_turned", "FusedMatMul", [a, weights(5, 4, seed=363)], transB=1, opset=20)
    fused(cases, "vector", "FusedMatMul", [a, floats(4, seed=364)])
    fused(cases, "four_dimensions", "FusedMatMul", [floats(2, 3, 4, 5, seed=365), floats(1, 3, 6, 5, seed=366)], transB=1)
    # [rows, batch, columns] as a batch of matrices
    fused(cases, "batch_turned", "FusedMatMul", [floats(3, 2, 4, seed=367), floats(4, 2, 5, seed=368)], transBatchA=1, transBatchB=1)
    fused(cases, "batch_and_matrix_turned", "FusedMatMul", [floats(4, 2, 3, seed=369), floats(5, 2, 4, seed=370)], transBatchA=1,
          transBatchB=1, transA=1, transB=1)
    fused(cases, "float64", "FusedMatMul", [a.astype(np.float64), turned.astype(np.float64)], transB=1, alpha=0.5)
    for activation, more in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", dict(activation_alpha=0.2)),
                             ("Elu", dict(activation_alpha=0.7)), ("HardSigmoid", dict(activation_alpha=0.3, activation_beta=0.4)),
                             ("Softplus", {}), ("Softsign", {})):
        fused(cases, activation.lower(), "FusedGemm", [floats(3, 4, seed=371), weights(5, 4, seed=372), weights(5, seed=373)], transB=1,
              activation=activation, **more)
    fused(cases, "scaled", "FusedGemm", [floats(3, 4, seed=371), weights(4, 5, seed=374), weights(5, seed=373)], alpha=0.5, beta=2.0,
          activation="Relu")


def convolutions(cases):
    x, w, b = floats(1, 4, 6, 6, seed=380), weights(6, 4, 3, 3, seed=381), weights(6, seed=382)
    z = floats(1, 6, 6, 6, seed=383)
    pads = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    for opset in (13, 20):
        fused(cases, "relu", "FusedConv", [x, w, b], opset=opset, activation="Relu", **pads)
        fused(cases, "clip", "FusedConv", [x, w, b], opset=opset, activation="Clip", activation_params=[0.0, 1.5], **pads)
    fused(cases, "none", "FusedConv", [x, w, b], **pads)
    fused(cases, "sum_relu", "FusedConv", [x, w, b, z], activation="Relu", **pads)
    fused(cases, "leakyrelu", "FusedConv", [x, w, b], activation="LeakyRelu", activation_params=[0.1], **pads)
    fused(cases, "hardsigmoid", "FusedConv", [x, w, b], activation="HardSigmoid", activation_params=[0.2, 0.5], **pads)
    fused(cases, "tanh_no_bias", "FusedConv", [x, w], activation="Tanh", strides=[2, 2], **pads)
    fused(cases, "sigmoid_groups", "FusedConv", [x, weights(6, 2, 3, 3, seed=384), b], activation="Sigmoid", group=2, **pads)


def few_bits(cases):
    random = np.random.default_rng(390)

    def case(name, rows, k, n, bits, block, zeros=None, bias=False, flat=False, opset=13, **more):
        blocks = -(-k // block)
        packed = Const(random.integers(0, 256, (n, blocks, block * bits // 8)), np.uint8)
        shape = (n * blocks,) if flat else (n, blocks)
        values = [floats(*rows, k, seed=391), packed, Const(random.uniform(0.01, 0.05, shape), np.float32)]
        if zeros == "packed":
            row = -(-blocks * bits // 8)
            values.append(Const(random.integers(0, 256, (n * row,) if flat else (n, row)), np.uint8))
        elif zeros == "floats":
            values.append(Const(random.uniform(5, 11, (n, blocks)), np.float32))
        elif bias:
            values.append(None)
        if bias:
            values += [None, weights(n, seed=392)]
        fused(cases, name, "MatMulNBits", values, opset=opset, K=k, N=n, bits=bits, block_size=block, **more)

    for bits in (4, 8):
        for block in (16, 32, 64, 128, 256):
            case(f"bits_{bits}_block_{block}", (2, 3), 256, 5, bits, block)
        case(f"bits_{bits}_zeros", (2, 3), 96, 6, bits, 32, zeros="packed")
        case(f"bits_{bits}_short_block", (5,), 70, 7, bits, 32, zeros="packed")
        case(f"bits_{bits}_bias", (1, 1), 64, 9, bits, 16, bias=True)
        case(f"bits_{bits}_zeros_bias", (1, 6), 64, 9, bits, 16, zeros="packed", bias=True, opset=20)
    case("float_zeros", (4,), 64, 8, 4, 32, zeros="floats")
    case("flat", (4,), 96, 8, 4, 32, zeros="packed", flat=True)
    case("one_row", (1,), 128, 33, 4, 32)
    for bits in (4, 8):  # from 8 rows on other kernels compute it, 128 columns at a time
        case(f"bits_{bits}_rows", (2, 9), 70, 131, bits, 32, zeros="packed", bias=True)
        case(f"bits_{bits}_rows_few_columns", (16,), 64, 5, bits, 16)
    case("accuracy", (3,), 64, 8, 4, 32, accuracy_level=1)


def quantised(cases):
    def real(*shape, seed, kind=np.uint8):
        return integers(*shape, seed=seed, low=0 if kind == np.uint8 else -128, high=256 if kind == np.uint8 else 128, kind=kind)

    def scale(value, zero, kind=np.uint8):
        return [Const(value, np.float32), Const(zero, kind)]

    for kind, zeros in ((np.uint8, (120, 131, 128)), (np.int8, (-3, 5, 7))):
        name = np.dtype(kind).name
        a, b = real(2, 3, 4, seed=400, kind=kind), real(2, 3, 4, seed=401, kind=kind)
        for operator in ("QLinearAdd", "QLinearMul"):
            fused(cases, name, operator, [a, *scale(0.031, zeros[0], kind), b, *scale(0.017, zeros[1], kind),
                                          *scale(0.041, zeros[2], kind)])
            fused(cases, f"{name}_stretched", operator, [a, *scale(0.031, zeros[0], kind), Const(b[0, :1], kind),
                                                         *scale(0.017, zeros[1], kind), *scale(0.053, zeros[2], kind)], opset=20)
        fused(cases, name, "QLinearSigmoid", [a, *scale(0.043, zeros[0], kind), *scale(0.0039, zeros[1], kind)])
        fused(cases, name, "QLinearLeakyRelu", [a, *scale(0.043, zeros[0], kind), *scale(0.031, zeros[1], kind)], alpha=0.2)
        fused(cases, f"{name}_default", "QLinearLeakyRelu", [a, *scale(0.043, zeros[0], kind), *scale(0.031, zeros[1], kind)])
        image = real(2, 3, 7, 6, seed=402, kind=kind)
        ends = [*scale(0.02317, zeros[0], kind), *scale(0.01913, zeros[1], kind)]
        fused(cases, name, "QLinearGlobalAveragePool", [image, *ends], channels_last=0)
        fused(cases, f"{name}_channels_last", "QLinearGlobalAveragePool", [image, *ends], channels_last=1)
        fused(cases, name, "QLinearAveragePool", [image, *ends], kernel_shape=[3, 3], strides=[2, 2])
        fused(cases, f"{name}_pads", "QLinearAveragePool", [image, *ends], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        fused(cases, f"{name}_pads_counted", "QLinearAveragePool", [image, *ends], kernel_shape=[3, 3], pads=[1, 0, 1, 1],
              count_include_pad=1)
        fused(cases, f"{name}_channels_last", "QLinearAveragePool", [image, *ends], kernel_shape=[2, 3], strides=[2, 1],
              channels_last=1)
        parts = [a, *scale(0.031, zeros[0], kind), real(2, 2, 4, seed=403, kind=kind), *scale(0.012, zeros[1], kind)]
        fused(cases, name, "QLinearConcat", [*scale(0.031, zeros[0], kind), *parts], axis=1)
        fused(cases, f"{name}_rescaled", "QLinearConcat", [*scale(0.027, zeros[2], kind), *parts], axis=-2)
    a, b = floats(2, 3, 8, seed=410), integers(8, 5, seed=411, low=-128, high=128, kind=np.int8)
    unsigned = Const(integers(8, 5, seed=412, low=0, high=256, kind=np.uint8), np.uint8)
    columns = Const(floats(5, seed=413, low=0.01, high=0.03), np.float32)
    bias = weights(5, seed=414)
    fused(cases, "plain", "DynamicQuantizeMatMul", [a, Const(b, np.int8), Const(0.02, np.float32)])
    fused(cases, "zero", "DynamicQuantizeMatMul", [a, unsigned, Const(0.02, np.float32), Const(130, np.uint8)])
    fused(cases, "columns_bias", "DynamicQuantizeMatMul", [a, Const(b, np.int8), columns, None, bias])
    fused(cases, "columns_zeros_bias", "DynamicQuantizeMatMul", [a, unsigned, columns, Const([128, 120, 3, 0, 255], np.uint8), bias],
          opset=20)
    q = real(2, 3, 8, seed=415)
    one = Const(0.05, np.float32)
    fused(cases, "plain", "MatMulIntegerToFloat", [q, Const(b, np.int8), one, Const(0.02, np.float32)])
    fused(cases, "zeros", "MatMulIntegerToFloat", [q, unsigned, one, Const(0.02, np.float32), Const(120, np.uint8), Const(130, np.uint8)])
    fused(cases, "columns_bias", "MatMulIntegerToFloat", [q, Const(b, np.int8), one, columns, Const(120, np.uint8), None, bias])


def add_all(cases):
    for family in (gelu, normalisations, embeddings, attention, many_heads, rotary, grouped, products, convolutions, few_bits, quantised):
        family(cases)
