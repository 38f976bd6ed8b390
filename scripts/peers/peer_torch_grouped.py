"""PyTorch's grouped_mm: rows sorted by adapter, one grouped product for shrink and one a slice of expand."""
import torch_steps
from arrays import Missing

LIBRARY = "torch"


def available(folder):
    version = torch_steps.available()
    if grouped_mm() is None:
        raise Missing(f"{version} has no grouped_mm; 2.8 and later have it")
    return version + ", grouped_mm"


def grouped_mm():
    import torch
    return getattr(torch.nn.functional, "grouped_mm", getattr(torch, "_grouped_mm", None))


def supports(case):
    if case.dtype != "bf16":
        return "takes bf16 alone"
    if case.in_features % 8 or case.max_rank % 8 or any(width % 8 for width in case.widths):
        return "wants K, N and rank in multiples of 8"
    return torch_steps.supports(case)


def declared(case):
    return torch_steps.declared(case, True), "CUTLASS, fp32 sums; h and delta rounded to bf16"


def prepare(case, x, y, arrays):
    rows, ends = torch_steps.row_numbers(case, x)
    return {"case": case, "x": x, "y": y, "torch": arrays.torch, "rows": rows, "ends": ends,
            "scale": torch_steps.scale_of_rows(case, rows, x), "grouped_mm": grouped_mm()}


def operands(state, a, b):
    return torch_steps.packed(a, 1), [torch_steps.without_padding(weights) for weights in b]


def launch(state, operands):
    a, b = operands
    torch, case, rows, ends = state["torch"], state["case"], state["rows"], state["ends"]
    rank, grouped_mm = case.max_rank, state["grouped_mm"]
    h = grouped_mm(state["x"].index_select(0, rows), a.transpose(1, 2), offs=ends)
    delta = torch.cat([grouped_mm(h[:, i * rank:(i + 1) * rank], weights.transpose(1, 2), offs=ends)
                       for i, weights in enumerate(b)], 1)
    y = state["y"]
    y.index_copy_(0, rows, torch_steps.scaled_sum(y.index_select(0, rows), delta, state["scale"]))
