"""PyTorch, the weights of each row gathered and multiplied in a batch: what one writes first."""
import torch_steps

LIBRARY = "torch"
MOST_GATHERED = 8e9  # bytes


def available(folder):
    return torch_steps.available() + ", gather and bmm"


def supports(case):
    rows = sum(len(rows) for _, rows in case.groups)
    gathered = 2.0 * rows * case.max_rank * (len(case.widths) * case.in_features + sum(case.widths))
    if gathered > MOST_GATHERED:
        return f"a copy of the weights for each row takes {gathered / 1e9:.1f} GB"
    return torch_steps.supports(case)


def declared(case):
    return torch_steps.declared(case, False), f"batched cuBLAS, fp32 sums; h and delta rounded to {case.dtype}"


def prepare(case, x, y, arrays):
    torch = arrays.torch
    rows, _ = torch_steps.row_numbers(case, x)
    rows = rows.sort().values
    adapters = torch.from_numpy(case.ids[rows.cpu().numpy()]).to(x.device).long()
    return {"case": case, "x": x, "y": y, "torch": torch, "rows": rows, "adapters": adapters,
            "scale": torch_steps.scale_of_rows(case, rows, x)}


def operands(state, a, b):
    return torch_steps.packed(a, 1), torch_steps.packed(b, 1)


def launch(state, operands):
    torch, case, rows, rank = state["torch"], state["case"], state["rows"], state["case"].max_rank
    a, b = (weights.index_select(0, state["adapters"]) for weights in operands)
    h = torch.bmm(a, state["x"].index_select(0, rows)[:, :, None])
    delta = torch.cat([torch.bmm(b[:, lane], h[:, i * rank:(i + 1) * rank]) for i, lane in enumerate(case.lanes)], 1)
    y = state["y"]
    y.index_copy_(0, rows, torch_steps.scaled_sum(y.index_select(0, rows), delta[:, :, 0], state["scale"]))
