"""What kernels of NumPy are helped with: numbers and codes, and the quantiser among the examples."""

import importlib.util
import pathlib
import sys
import types
import unittest
import warnings

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))

from lora_bench import on_host  # noqa: E402

FORMATS = {"e4m3": 0x7E, "e5m2": 0x7B}  # the code of the largest number
# NaN of both kinds and signs, infinities, the least number of fp32, one above all of eight bits.
STRANGE = np.array([0x7FC00000, 0x7F800001, 0xFF800001, 0x7F800000, 0xFF800000, 1, 0x7F000000], np.uint32)


def example(name):
    spec = importlib.util.spec_from_file_location(name, SOURCE / "examples" / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Array:
    """A tensor of a step as far as a kernel on a host asks it."""

    def __init__(self, memory, dtype):
        self.bits, self.dtype = memory, dtype

    def __array__(self, dtype=None, copy=None):
        return self.bits


class WithoutWarnings(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error")


class Codes(WithoutWarnings):
    def test_strange_numbers_have_codes(self):
        for dtype, most in FORMATS.items():
            codes = on_host.codes_of(STRANGE.view(np.float32), dtype)
            self.assertEqual(codes.tolist(), [0x7F, 0x7F, 0xFF, most, most | 0x80, 0, most])

    def test_every_number_of_a_format_has_its_code(self):
        for dtype, most in FORMATS.items():
            codes = np.arange(most + 1, dtype=np.uint8)
            numbers = on_host._EIGHT_BITS[dtype]
            for sign in (0, 0x80):
                self.assertEqual(on_host.codes_of(numbers[codes | sign], dtype).tolist(), (codes | sign).tolist())

    def test_what_is_no_number_is_read_and_stored_as_such(self):
        self.assertTrue(np.isnan(on_host.numbers(np.array([0x7F81, 0xFFC0], np.uint16))).all())
        self.assertTrue(np.isnan(on_host.numbers(np.array([0x7C01], np.uint16).view(np.float16))).all())
        for dtype in (np.uint16, np.float16):
            stored = on_host.stored(STRANGE.view(np.float32), dtype)
            self.assertEqual(np.isnan(on_host.numbers(stored)).tolist(), [True] * 3 + [False] * 4)


class Quantiser(WithoutWarnings):
    def step(self, x, **rules):
        rows, columns = x.shape
        plain = {"rows": rows, "columns": columns, "group": columns, "scale_rows": rows, "q_dtype": "e4m3",
                 "least_amax": 0.0, "least_scale": 2.0 ** -20, "power_of_two": False, "multiply": False,
                 "scales_given": False, "x": Array(x, "fp32"), "q": Array(np.zeros((rows, columns), np.uint8), "e4m3"),
                 "q_scale": np.zeros((rows, 1), np.float32)}
        return types.SimpleNamespace(**{**plain, **rules})

    def test_nan_and_infinity_are_quantised_without_a_word(self):
        module = example("numpy_quantise")
        x = np.stack([np.roll(STRANGE, shift) for shift in range(3)]).view(np.float32)
        for rules in ({}, {"multiply": True}, {"power_of_two": True}):
            step = self.step(x.copy(), **rules)
            module.quantise(step)
            self.assertEqual(step.q_scale[:, 0].tolist(), [np.inf] * 3)
            self.assertEqual(step.q.bits[0].tolist(), [0x7F, 0x7F, 0xFF, *step.q.bits[0, 3:5], 0, 0])

    def test_nan_is_not_the_largest(self):
        step = self.step(np.array([[np.nan, -448.0, 3.0]], np.float32))
        example("numpy_quantise").quantise(step)
        self.assertEqual(step.q_scale.tolist(), [[1.0]])
        self.assertEqual(step.q.bits.tolist(), [[0x7F, 0xFE, 0x44]])

    def test_a_scale_is_raised_to_the_power_of_two_that_is_not_below(self):
        module = example("numpy_quantise")
        for largest, scale in ((448.0, 1.0), (449.0, 2.0), (3.5, 2.0 ** -7), (3.0, 2.0 ** -7)):
            step = self.step(np.array([[largest, 0.0]], np.float32), power_of_two=True)
            module.quantise(step)
            self.assertEqual(step.q_scale.tolist(), [[scale]])


class QuantisedH(WithoutWarnings):
    def step(self, **rules):
        plain = {"h_code_dtype": "e4m3", "h_group": 0, "h_multiply": 0, "h_power_of_two": 0, "h_least_amax": 0.0,
                 "h_least_scale": 2.0 ** -20}
        return types.SimpleNamespace(**{**plain, **rules})

    def test_lanes_become_codes_times_the_scale_of_their_group(self):
        h = np.array([[3, 1, 0.25, -0.5, 0]], np.float32)
        third, half = np.float32(3) / np.float32(448), np.float32(0.5) / np.float32(448)
        codes = np.array([[448, 144, 36, -72, 0]], np.float32)
        np.testing.assert_array_equal(on_host.quantised(self.step(), h), codes * third)
        codes = np.array([[448, 144, 224, -448, 0]], np.float32)
        scales = np.array([[third, third, half, half, 2.0 ** -20]], np.float32)
        np.testing.assert_array_equal(on_host.quantised(self.step(h_group=2), h), codes * scales)

    def test_the_rule_is_that_of_the_step(self):
        h = np.array([[3, 1.0625]], np.float32)
        scale = np.float32(3) / np.float32(57344)
        for rules, codes, of in (({"h_power_of_two": 1}, [384, 128], 2.0 ** -7),
                                 ({"h_least_amax": 448 * 16.0}, [0.1875, 0.0625], 16),
                                 ({"h_least_scale": 1.0}, [3, 1], 1),
                                 ({"h_code_dtype": "e5m2"}, [57344, 20480], scale)):
            result = on_host.quantised(self.step(**rules), h)
            np.testing.assert_array_equal(result, np.array([codes], np.float32) * np.float32(of))

    def test_nan_is_not_the_largest_and_stays(self):
        h = np.array([[np.nan, 448], [np.nan, np.nan]], np.float32)
        for rules in ({}, {"h_power_of_two": 1}, {"h_multiply": 1}):
            result = on_host.quantised(self.step(**rules), h)
            self.assertEqual(result[0, 1], 448)
            self.assertEqual(np.isnan(result).tolist(), [[True, False], [True, True]])
        self.assertEqual(on_host.quantised(self.step(), np.zeros((2, 0), np.float32)).shape, (2, 0))


if __name__ == "__main__":
    unittest.main()
