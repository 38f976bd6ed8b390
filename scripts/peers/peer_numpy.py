"""NumPy, one product for each adapter and slice, in fp32 on the host: not fast, but it runs anywhere."""
import numpy as np

LIBRARY = "numpy"


def available(folder):
    return f"NumPy {np.__version__}"


def supports(case):
    if case.bias:
        return "adds no bias"
    if not (case.meta["shrink"] and case.meta["expand"]):
        return f"does linear and logits, not {case.op}"
    return None


def declared(case):
    return {"intermediate": "fp32"}, "fp32 in NumPy's order, y rounded once when it is given back"


def prepare(case, x, y, arrays):
    return {"case": case, "x": x, "y": y}


def operands(state, a, b):
    return a, b


def launch(state, operands):
    case, y = state["case"], state["y"]
    for adapter, rows in case.groups:
        rank = case.rank[adapter]
        for a, b, lane in zip(*operands, case.lanes):
            h = state["x"][rows] @ a[adapter, :rank].T * case.scale[adapter]
            delta = h @ b[adapter, :, :rank].T
            y[rows, lane] = y[rows, lane] + delta if case.add_inputs else delta
