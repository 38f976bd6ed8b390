"""What the peers made of PyTorch's own operators share."""
from arrays import Missing


def declared(case, known_order):
    """For `lora-bench check`: h and delta in 16 bits. Where kernels are known to add 16 products a step on
    tensor cores and at most 64 parts of K after that, the sums are less deep than K."""
    options = {"intermediate": case.dtype, "rounds-delta": True}
    if known_order:
        options["shrink-depth"] = min(case.in_features, case.in_features // 8 + 128)
        options["expand-depth"] = min(case.max_rank + 2, case.max_rank // 8 + 32)
    return options


def available():
    try:
        import torch
    except ImportError as error:
        raise Missing(f"no PyTorch here ({error}): pip install torch") from error
    # Its default lets cuBLAS add parts of K in bf16, which no bound for fp32 sums allows.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return f"torch {torch.__version__}"


def supports(case, ops=("linear", "logits")):
    if case.op not in ops:
        return f"does {' and '.join(ops)}, not {case.op}"
    if not case.groups:
        return "no row has an adapter: there is nothing to run"
    if case.bias:
        return "adds no bias"
    if case.dtype == "fp32":
        return "is for 16-bit numbers"
    if case.meta["expand"] and not case.add_inputs:
        return "adds to y, as a layer does; add_inputs is false here"
    return None


def without_padding(weights):
    """Zeros where an op must not read: what serving engines keep above the rank of an adapter."""
    return weights.nan_to_num(0.0)


def packed(weights, axis):
    """Slices side by side, as layers of several projections keep them."""
    import torch
    return without_padding(torch.cat(weights, dim=axis)).contiguous()


def row_numbers(case, x):
    """Rows with an adapter of a rank, grouped by adapter, and where each group ends, by slot."""
    import numpy as np
    import torch
    by_slot = dict(case.groups)
    rows = [by_slot.get(slot, np.empty(0, np.int64)) for slot in range(case.slots)]
    numbers = np.concatenate(rows).astype(np.int64) if rows else np.empty(0, np.int64)
    ends = np.cumsum([len(group) for group in rows])
    return (torch.from_numpy(numbers).to(x.device), torch.from_numpy(ends.astype(np.int32)).to(x.device))


def scale_of_rows(case, rows, x):
    """One scale, or a column of them."""
    import torch
    if case.one_scale is not None:
        return case.one_scale
    return torch.from_numpy(case.scale[case.ids[rows.cpu().numpy()]]).to(x.device)[:, None]


def scaled_sum(y, delta, scale):
    """y + scale * delta, rounded once."""
    if isinstance(scale, float):
        return y.add(delta, alpha=scale)
    return (y.float() + delta.float() * scale).to(y.dtype)
