"""vLLM's lora_shrink and lora_expand, called as its Punica wrapper calls them for a linear layer."""
import importlib

import torch_steps
import unpacked

LIBRARY = "torch"
OPS = "vllm.lora.ops.triton_ops."


def available(folder):
    modules = ("lora_shrink_op", "lora_expand_op", "lora_kernel_metadata", "utils")
    version = unpacked.version_of("vllm", "vLLM", folder, stand_ins, lambda: [op(module) for module in modules])
    tuned = op("utils").envs.VLLM_TUNED_CONFIG_FOLDER
    return (f"{version}, grid of active adapters, "
            + (f"configs tuned in {tuned}" if tuned else "default configs (it ships none)"))


def op(module):
    return importlib.import_module(OPS + module)


def stand_ins():
    import logging

    import torch
    import triton
    import triton.language as tl

    def to_device(data, dtype, device):
        return torch.tensor(data, dtype=dtype).to(device)

    def refuse(*arguments, **options):
        raise AttributeError("no custom ops without the package: the plain functions are called")

    def of_device():
        major, minor = torch.cuda.get_device_capability()
        return 10 * major + minor

    class Logger(logging.Logger):
        info_once, warning_once = logging.Logger.debug, logging.Logger.debug

    class Platform:
        def is_cuda(self):
            return torch.cuda.is_available()

        def has_device_capability(self, capability):
            return self.is_cuda() and of_device() >= capability

        def is_device_capability(self, capability):
            return self.is_cuda() and of_device() == capability

    return {"vllm.triton_utils": {"triton": triton, "tl": tl, "HAS_TRITON": True},
            "vllm.logger": {"init_logger": Logger},
            "vllm.platforms": {"current_platform": Platform()},
            "vllm.utils.math_utils": {"next_power_of_2": triton.next_power_of_2},
            "vllm.utils.torch_utils": {"direct_register_custom_op": refuse, "async_tensor_h2d": to_device}}


def supports(case):
    if case.one_scale is None:
        return "takes one scale for all adapters (lora-bench export --scales-as-written keeps that of the scenario)"
    if any(width != case.widths[0] for width in case.widths) and 0 in case.widths:
        return "takes no slice of width 0"
    return torch_steps.supports(case)


def declared(case):
    return (torch_steps.declared(case, True),
            f"Triton, fp32 sums of parts of K by atomics; h in fp32, rounded to {case.dtype} for expand; delta rounded")


def prepare(case, x, y, arrays):
    torch = arrays.torch
    utils = op("utils")
    # Tables of addresses are kept by address alone: those of the case before may stand at the same.
    utils._LORA_A_PTR_DICT.clear()
    utils._LORA_B_PTR_DICT.clear()
    meta = op("lora_kernel_metadata").LoRAKernelMeta.make(case.slots, case.tokens, device=x.device)
    ids = torch.from_numpy(case.ids.astype("i8")).to(x.device)
    if len(case.groups) < len(set(case.ids) - {-1}):  # adapters of rank 0
        ids[torch.from_numpy(case.rank[case.ids] == 0).to(x.device)] = -1
    meta.prepare_tensors(ids)
    h = torch.empty(len(case.widths), case.tokens, case.max_rank, dtype=torch.float32, device=x.device)
    return {"x": x, "y": y, "h": h, "meta": meta.meta_args(case.tokens, True), "scale": case.one_scale,
            "shrink": op("lora_shrink_op").lora_shrink, "expand": op("lora_expand_op").lora_expand}


def operands(state, a, b):
    return tuple([torch_steps.without_padding(w) for w in weights] for weights in (a, b))


def launch(state, operands):
    a, b = operands
    state["shrink"](state["x"], a, state["h"], *state["meta"], state["scale"])
    state["expand"](state["h"], b, state["y"], *state["meta"], offset_start=0, add_inputs=True)
