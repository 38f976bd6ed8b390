"""PyTorch, a loop over adapters: one product for all slices of shrink, one a slice of expand."""
import numpy as np

import torch_steps

LIBRARY = "torch"


def available(folder):
    return torch_steps.available() + ", loop over adapters, cuBLAS"


def supports(case):
    return torch_steps.supports(case, ("linear", "logits", "shrink"))


def declared(case):
    if case.op == "shrink":
        return {}, "cuBLAS, fp32 sums; h in fp32"
    return {"intermediate": case.dtype}, f"cuBLAS, fp32 sums; h in {case.dtype}; y added inside the product"


def prepare(case, x, y, arrays):
    torch = arrays.torch
    groups = []
    for adapter, rows in case.groups:
        # Neighbouring rows are a view, others are gathered and scattered.
        run = len(rows) == rows[-1] - rows[0] + 1
        index = slice(int(rows[0]), int(rows[-1]) + 1) if run else torch.from_numpy(rows.astype(np.int64)).to(x.device)
        groups.append((adapter, index, run, float(case.scale[adapter])))
    state = {"case": case, "x": x, "y": y, "groups": groups, "torch": torch}
    if case.op == "shrink":
        state["rows"] = torch_steps.row_numbers(case, x)[0]
        state["h"] = torch.zeros(len(case.widths), case.tokens, case.max_rank, device=x.device,
                                 dtype=torch.float32 if case.meta["dtypes"]["h"] == "fp32" else x.dtype)
    return state


def operands(state, a, b):
    return torch_steps.packed(a, 1), [torch_steps.without_padding(w) for w in b if w is not None]


def launch(state, operands):
    (shrink if state["case"].op == "shrink" else linear)(state, *operands)


def linear(state, a, b):
    torch, case, x, y = state["torch"], state["case"], state["x"], state["y"]
    for adapter, index, run, scale in state["groups"]:
        h = (x[index] if run else x.index_select(0, index)) @ a[adapter].T
        for i, lane in enumerate(case.lanes):
            part = h[:, i * case.max_rank:(i + 1) * case.max_rank]
            if run:
                y[index, lane].addmm_(part, b[i][adapter].T, alpha=scale)
            else:
                y[index, lane] = torch.addmm(y[index, lane], part, b[i][adapter].T, alpha=scale)


def shrink(state, a, b):
    """The steps of our `cublas`: gather all rows, a product a slice with an fp32 result, scale and put back."""
    torch, case, rank = state["torch"], state["case"], state["case"].max_rank
    x, begin = state["x"].index_select(0, state["rows"]), 0
    h = torch.empty(len(case.widths), len(x), rank, device=x.device, dtype=torch.float32)
    for (adapter, rows), (_, _, _, scale) in zip(case.groups, state["groups"]):
        end = begin + len(rows)
        for i in range(len(case.widths)):
            product(torch, x[begin:end], a[adapter, i * rank:(i + 1) * rank].T, h[i, begin:end])
        if case.meta["scale_at"] == "shrink" and scale != 1:
            h[:, begin:end] *= scale
        begin = end
    state["h"].index_copy_(1, state["rows"], h.to(state["h"].dtype))


def product(torch, left, right, out):
    if left.is_cuda:
        torch.mm(left, right, out_dtype=torch.float32, out=out)
    else:
        torch.mm(left.float(), right.float(), out=out)


def hidden(state):
    return state["h"]
