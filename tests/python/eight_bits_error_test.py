"""scripts/eight_bits_error.py: roundings against the formats' own codes, and what it says of adapters."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "eight_bits_error.py"
SPEC = importlib.util.spec_from_file_location("eight_bits_error", SCRIPT)
TOOL = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TOOL)


def numbers_of(exponent_bits, fraction_bits, is_number):
    """All finite numbers of a format of eight bits, from its codes."""
    bias = 2 ** (exponent_bits - 1) - 1
    numbers = []
    for code in range(128):
        exponent, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
        if is_number(exponent, fraction):
            whole = fraction if exponent == 0 else fraction + (1 << fraction_bits)
            numbers.append(whole * 2.0 ** (max(exponent, 1) - bias - fraction_bits))
    return numbers


NUMBERS = {"e4m3": numbers_of(4, 3, lambda exponent, fraction: (exponent, fraction) != (15, 7)),
           "e5m2": numbers_of(5, 2, lambda exponent, fraction: exponent != 31)}


def safetensors(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def said_of(content):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "adapter_model.safetensors"
        file.write_bytes(content)
        return subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True, check=False)


def row_of(out, form, scale):
    (line,) = [line.split() for line in out.splitlines() if line.split()[:2] == [form, scale]]
    return [float(cell.rstrip("%")) for cell in line[2:]]


def adapter(a, b, module="layers.0.q_proj"):
    return {f"base_model.{module}.lora_A.weight": a, f"base_model.{module}.lora_B.weight": b}


class Roundings(unittest.TestCase):
    def test_every_number_of_a_format_stays(self):
        for form, numbers in NUMBERS.items():
            with self.subTest(form=form):
                both = np.array(numbers + [-number for number in numbers])
                np.testing.assert_array_equal(TOOL.rounded(both, form), both)

    def test_halfway_goes_to_the_number_with_an_even_code(self):
        for form, numbers in NUMBERS.items():
            for code, (low, high) in enumerate(zip(numbers, numbers[1:])):
                even = low if code % 2 == 0 else high
                with self.subTest(form=form, code=code):
                    self.assertEqual(TOOL.rounded(np.array([(low + high) / 2]), form)[0], even)

    def test_beyond_the_largest_is_the_largest(self):
        self.assertEqual(TOOL.rounded(np.array([1e6, -1e6]), "e4m3").tolist(), [448, -448])


class Adapters(unittest.TestCase):
    def test_one_whose_numbers_the_format_holds_is_not_changed(self):
        random = np.random.default_rng(3)
        a = np.exp2(random.integers(-3, 1, (4, 48)))
        b = np.exp2(random.integers(-3, 1, (40, 4)))
        a[:, 0] = b[:, 0] = 7 / 4  # 448 times a power of two: scales are one too
        result = said_of(safetensors(adapter(a, b)))
        self.assertEqual(result.returncode, 0, result.stderr)
        for form in ("e4m3", "e5m2"):
            for scale in ("tensor", "channel", "block"):
                self.assertEqual(row_of(result.stdout, form, scale)[1:],
                                 [0, 0, 0], (form, scale))

    def test_a_large_channel_spoils_the_others_of_a_tensor_and_not_of_channels(self):
        random = np.random.default_rng(4)
        a = random.normal(size=(8, 64))
        a[0] *= 1e5
        b = random.normal(size=(32, 8))
        b[:, 0] = 0
        out = said_of(safetensors(adapter(a, b))).stdout
        self.assertLess(row_of(out, "e4m3", "channel")[2], 5)
        self.assertGreater(row_of(out, "e4m3", "tensor")[2], 20)

    def test_modules_are_counted_and_the_worst_is_told(self):
        random = np.random.default_rng(5)
        exact = adapter(np.full((2, 8), 1.75), np.full((8, 2), 1.75), "layers.0.o_proj")
        other = adapter(random.normal(size=(2, 8)), random.normal(size=(8, 2)))
        out = said_of(safetensors(exact | other)).stdout
        self.assertIn("2 modules", out)
        _, _, mean, worst = row_of(out, "e4m3", "tensor")
        self.assertAlmostEqual(mean, worst / 2, delta=0.02)

    def test_what_is_no_adapter_is_refused_in_one_line(self):
        for content, sentence in ((b"no tensors", "no safetensors file"),
                                  (safetensors({"weight": np.ones((2, 2))}), "no pair of lora_A and lora_B")):
            result = said_of(content)
            self.assertEqual(result.returncode, 1)
            self.assertIn(sentence, result.stderr)
            self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
