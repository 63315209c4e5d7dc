"""Cases of Attention and RotaryEmbedding (opset 23)."""
import numpy as np

from harness import Const, floats


def rotary(cases):
    x = floats(2, 3, 4, 8, seed=100)
    cos, sin = floats(10, 4, seed=101, low=-1, high=1), floats(10, 4, seed=102, low=-1, high=1)
    ids = np.array([[0, 1, 2, 3], [4, 9, 6, 0]], np.int64)
    for interleaved in (0, 1):
        cases.op(f"ids_{interleaved}", 23, "RotaryEmbedding", [x, Const(cos, np.float32), Const(sin, np.float32), ids],
                 interleaved=interleaved)
        cases.op(f"flat_{interleaved}", 23, "RotaryEmbedding",
                 [floats(2, 4, 24, seed=103), Const(cos, np.float32), Const(sin, np.float32), ids], interleaved=interleaved,
                 num_heads=3)
        cases.op(f"rows_{interleaved}", 23, "RotaryEmbedding",
                 [x, floats(2, 4, 4, seed=104), floats(2, 4, 4, seed=105)], interleaved=interleaved)
        cases.op(f"part_{interleaved}", 23, "RotaryEmbedding",
                 [x, Const(cos[:, :2], np.float32), Const(sin[:, :2], np.float32), ids], interleaved=interleaved,
                 rotary_embedding_dim=4)
    half = [a.astype(np.float16) for a in (x, cos, sin)]
    cases.op("float16", 23, "RotaryEmbedding", [half[0], Const(half[1], np.float16), Const(half[2], np.float16), ids])


def attention(cases):
    q, k, v = floats(2, 4, 3, 8, seed=110), floats(2, 4, 5, 8, seed=111), floats(2, 4, 5, 6, seed=112)
    same = floats(2, 4, 3, 8, seed=113), floats(2, 4, 3, 8, seed=114)
    cases.op("plain", 23, "Attention", [q, k, v])
    cases.op("scale", 23, "Attention", [q, k, v], scale=0.1)
    cases.op("causal", 23, "Attention", [q, *same], is_causal=1)
    cases.op("causal_longer", 23, "Attention", [q, k, v], is_causal=1)
    cases.op("softcap", 23, "Attention", [q, k, v], softcap=2.0)
    for name, mask in (("2d", floats(3, 5, seed=115)), ("3d", floats(4, 3, 5, seed=116)), ("4d", floats(2, 4, 3, 5, seed=117))):
        cases.op(f"mask_{name}", 23, "Attention", [q, k, v, mask])
        allowed = mask > -1
        allowed[..., 0] = True
        cases.op(f"mask_{name}_bool", 23, "Attention", [q, k, v, allowed])
    cases.op("mask_causal", 23, "Attention", [q, *same, floats(3, 3, seed=119)], is_causal=1)
    # A mask for all queries alike, which onnxruntime refuses: from the definition.
    row = floats(1, 5, seed=118)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / np.sqrt(8) + row
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    cases.op("mask_row", 23, "Attention", [q, k, v, row],
             expected=[(weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)).astype(np.float32)])
    # Grouped queries: 2 heads of keys for 4 of queries.
    k2, v2 = floats(2, 2, 5, 8, seed=120), floats(2, 2, 5, 8, seed=121)
    cases.op("grouped", 23, "Attention", [q, k2, v2])
    cases.op("multi_query", 23, "Attention", [q, k2[:, :1], v2[:, :1]])
    # [batch, length, heads * size]
    flat = floats(2, 3, 32, seed=122), floats(2, 5, 32, seed=123), floats(2, 5, 24, seed=124)
    cases.op("flat", 23, "Attention", [*flat], q_num_heads=4, kv_num_heads=4)
    cases.op("flat_mask", 23, "Attention", [*flat, floats(3, 5, seed=125)], q_num_heads=4, kv_num_heads=4)
    cases.op("flat_grouped", 23, "Attention", [flat[0], floats(2, 5, 16, seed=126), floats(2, 5, 16, seed=127)], q_num_heads=4,
             kv_num_heads=2)
    past = floats(2, 4, 7, 8, seed=128), floats(2, 4, 7, 6, seed=129)
    cases.op("past", 23, "Attention", [q, k, v, None, *past], outputs=3)
    cases.op("past_mask", 23, "Attention", [q, k, v, floats(3, 12, seed=130), *past], outputs=3)
    cases.op("past_flat", 23, "Attention", [*flat, None, *past], outputs=3, q_num_heads=4, kv_num_heads=4)
    cases.op("past_grouped", 23, "Attention", [q, k2, v2, None, floats(2, 2, 7, 8, seed=131), floats(2, 2, 7, 8, seed=132)],
             outputs=3)
    cases.op("past_causal", 23, "Attention",
             [q, *same, None, floats(2, 4, 7, 8, seed=133), floats(2, 4, 7, 8, seed=134)], outputs=3, is_causal=1)
    cases.op("present", 23, "Attention", [q, k, v], outputs=3)
    for mode in range(4):
        cases.op(f"shown_{mode}", 23, "Attention", [q, k, v, floats(3, 5, seed=135)], outputs=["y", "", "", "qk"],
                 qk_matmul_output_mode=mode)
        cases.op(f"shown_capped_{mode}", 23, "Attention", [q, k, v, floats(3, 5, seed=136)], outputs=["y", "", "", "qk"],
                 qk_matmul_output_mode=mode, softcap=3.0)
    half = [a.astype(np.float16) for a in (q, k, v)]
    cases.op("float16", 23, "Attention", half)
    cases.op("past_causal_fewer", 23, "Attention", [q[:, :, :2], k, v, None, *past], outputs=3, is_causal=1)
    cases.op("one_query", 23, "Attention", [q[:, :, :1], k[:, :, :1], v[:, :, :1], None, *past], outputs=3, is_causal=1)


def add_all(cases):
    rotary(cases)
    attention(cases)
