"""FlashInfer's SegmentGEMMWrapper: rows sorted by adapter, a segmented product for shrink and one a slice of expand."""
import sys

import torch_steps
from arrays import Missing

LIBRARY = "torch"
WORKSPACE_BYTES = 128 << 20  # what its documentation encourages


def available(folder):
    version = torch_steps.available()
    if folder:  # where pip install --target, or unzip, laid the package
        sys.path.insert(0, folder)
    try:
        import flashinfer
        flashinfer.SegmentGEMMWrapper
    except (ImportError, AttributeError) as error:
        raise Missing(f"no FlashInfer with a SegmentGEMMWrapper here ({error}): "
                      "pip install flashinfer-python") from error
    import torch
    if not torch.cuda.is_available():
        raise Missing("FlashInfer needs a GPU")
    try:
        compiled(torch, flashinfer)
    except Exception as error:  # no compiler, or one that its kernels are not for
        raise Missing(f"FlashInfer {flashinfer.__version__} cannot make its segment GEMM here: "
                      f"{str(error).strip().splitlines()[-1][:300]}") from error
    return f"flashinfer {flashinfer.__version__}, SegmentGEMMWrapper, backend auto, {version}"


def compiled(torch, flashinfer):
    """Its kernels are compiled by the first launch, unless flashinfer-jit-cache has them: takes minutes."""
    x, weights = (torch.zeros(*shape, dtype=torch.bfloat16, device="cuda") for shape in ((8, 64), (1, 64, 64)))
    wrapper = flashinfer.SegmentGEMMWrapper(torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device="cuda"))
    wrapper.run(x, weights, 1, True, seg_indptr=torch.tensor([0, 8], dtype=torch.int64, device="cuda"))
    torch.cuda.synchronize()


def supports(case):
    if case.in_features % 8 or case.max_rank % 8 or any(width % 8 for width in case.widths):
        return "wants K, N and rank in multiples of 8"
    return torch_steps.supports(case)


def declared(case):
    return torch_steps.declared(case, True), f"CUTLASS, fp32 sums; h and delta rounded to {case.dtype}"


def prepare(case, x, y, arrays):
    import flashinfer
    torch = arrays.torch
    rows, _ = torch_steps.row_numbers(case, x)
    groups = dict(case.groups)
    adapters = sorted(groups)
    lengths = [len(groups[adapter]) for adapter in adapters]
    starts = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).to(x.device)
    wrapper = flashinfer.SegmentGEMMWrapper(torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=x.device))
    return {"case": case, "x": x, "y": y, "torch": torch, "rows": rows, "segments": len(adapters), "starts": starts,
            "adapters": torch.tensor(adapters, dtype=torch.int64, device=x.device), "wrapper": wrapper,
            "scale": torch_steps.scale_of_rows(case, rows, x)}


def operands(state, a, b):
    return torch_steps.packed(a, 1), [torch_steps.without_padding(weights) for weights in b]


def launch(state, operands):
    a, b = operands
    torch, rows, rank = state["torch"], state["rows"], state["case"].max_rank

    def product(values, weights):
        return state["wrapper"].run(values, weights, state["segments"], True, seg_indptr=state["starts"],
                                    weight_indices=state["adapters"])

    h = product(state["x"].index_select(0, rows), a)
    delta = torch.cat([product(h[:, i * rank:(i + 1) * rank].contiguous(), weights) for i, weights in enumerate(b)], 1)
    y = state["y"]
    y.index_copy_(0, rows, torch_steps.scaled_sum(y.index_select(0, rows), delta, state["scale"]))
