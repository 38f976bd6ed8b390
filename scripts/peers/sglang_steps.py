"""What the two LoRA backends of SGLang share: where their ops lie, weights and descriptions of batches."""
import importlib
import types

import numpy as np

import torch_steps
import unpacked

FOLDERS = ("sglang.kernels.ops.lora.dense", "sglang.kernels.ops.gemm", "sglang.srt.lora.triton_ops")  # the newest first


def available(folder, modules):
    return unpacked.version_of("sglang", "SGLang", folder, stand_ins, lambda: [op(module) for module in modules])


def op(module):
    for folder in FOLDERS:
        try:
            found = importlib.import_module(f"{folder}.{module}")
        except ModuleNotFoundError as error:
            if not f"{folder}.{module}".startswith(error.name):
                raise
            continue
        if not isinstance(found, unpacked.StandIn):
            return found
    raise ImportError(f"no {module} in {', '.join(FOLDERS)}")


def stand_ins():
    import torch

    def device_name():
        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    # Its own cache of compiled kernels saves time of the host alone.
    return {"sglang.srt.utils": {"cached_triton_kernel": lambda key=None: lambda kernel: kernel,
                                 "get_device_name": device_name}}


def declared(case):
    return (torch_steps.declared(case, True),
            f"Triton, fp32 sums; h and delta rounded to {case.dtype}, scale at expand")


def packed_weights(case, a, b):
    """A's slices follow one another at the rank of their adapter; B's lie side by side."""
    import torch
    together = torch.zeros(case.slots, len(a) * case.max_rank, case.in_features, dtype=a[0].dtype, device=a[0].device)
    for slot, rank in enumerate(case.rank):
        for i, weights in enumerate(a):
            together[slot, i * rank:(i + 1) * rank] = weights[slot, :rank]
    return torch_steps.without_padding(together), torch_steps.packed(b, 1)


def batch(case, x, longest):
    """Rows of one adapter in segments of at most `longest`; those without an adapter are in none."""
    import torch
    segments = [(adapter, rows[i:i + longest]) for adapter, rows in sorted(case.groups, key=lambda group: group[0])
                for i in range(0, len(rows), longest)]
    lengths = [len(rows) for _, rows in segments]
    used = np.concatenate([rows for _, rows in segments]) if segments else np.empty(0, np.int64)
    unused = np.setdiff1d(np.arange(case.tokens), used)

    def on_device(values, dtype=torch.int32):
        return torch.tensor(np.asarray(values), dtype=dtype).to(x.device)

    return types.SimpleNamespace(
        use_cuda_graph=False, bs=len(segments), num_segments=len(segments), max_len=longest,
        seg_indptr=on_device(np.cumsum([0, *lengths])), seg_lens=on_device(lengths),
        weight_indices=on_device([adapter for adapter, _ in segments]), lora_ranks=on_device(case.rank),
        scalings=on_device(case.scale, torch.float32), permutation=on_device(np.concatenate([used, unused])))


def forget_compiled(module, kernel):
    """Its cache of kernels has no rank in its keys, as that of a server never changes."""
    getattr(getattr(op(module), kernel), "kernel_cache", {}).clear()


def offsets(case, x):
    import torch
    return torch.tensor(np.cumsum([0, *case.widths]), dtype=torch.int32)
