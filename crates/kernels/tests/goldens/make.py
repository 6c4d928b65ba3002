"""Makes the golden files of the encodings with gguf-py: `python make.py`, beside this file.

`<format>.blocks` holds encoded blocks, `<format>.values` what gguf-py decodes them to (f32, little endian).
`q8_0.input` holds f32 values and `q8_0.encoded` what gguf-py encodes them to.
"""

from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent
FORMATS = {
    "f16": (gguf.GGMLQuantizationType.F16, [0]),
    "bf16": (gguf.GGMLQuantizationType.BF16, []),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, [0]),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, [0]),
    "q4_k": (gguf.GGMLQuantizationType.Q4_K, [0, 2]),
    "q6_k": (gguf.GGMLQuantizationType.Q6_K, [208]),
}
# Zero, the smallest denormal, the largest denormal, one, minus one, the largest, and an ordinary scale.
SCALES = [0x0000, 0x0001, 0x03FF, 0x3C00, 0xBC00, 0x7BFF, 0x2A37]


def blocks(kind, scales_at, rng):
    values, size = gguf.GGML_QUANT_SIZES[kind]
    count = 64 if values == 1 else len(SCALES) + 2
    data = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    # The extremes of the quants.
    data[0], data[1] = 0, 255
    for index in range(count):
        for at in scales_at:
            scale = SCALES[(index + at) % len(SCALES)] if values > 1 else rng.integers(0, 0x7C00)
            data[index, at : at + 2] = np.frombuffer(np.uint16(scale).tobytes(), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.BF16:
        data[:, 1] = data[:, 1] % 0x7F
    return data


def main():
    rng = np.random.default_rng(7)
    for name, (kind, scales_at) in FORMATS.items():
        data = blocks(kind, scales_at, rng)
        (HERE / f"{name}.blocks").write_bytes(data.tobytes())
        decoded = gguf.dequantize(data.reshape(1, -1), kind)
        (HERE / f"{name}.values").write_bytes(decoded.astype("<f4").tobytes())
    values = rng.standard_normal(8 * 32).astype(np.float32)
    values[:32] = 0
    values[32:64] *= 1e-6
    values[64:96] *= 1e4
    # Exact halves: which way they are rounded shows here.
    values[96] = 127 * 2
    values[97:128] = np.arange(31) * 2 + 1
    (HERE / "q8_0.input").write_bytes(values.astype("<f4").tobytes())
    encoded = gguf.quantize(values.reshape(1, -1), gguf.GGMLQuantizationType.Q8_0)
    (HERE / "q8_0.encoded").write_bytes(encoded.tobytes())


main()
