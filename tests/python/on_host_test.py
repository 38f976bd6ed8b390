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


if __name__ == "__main__":
    unittest.main()
