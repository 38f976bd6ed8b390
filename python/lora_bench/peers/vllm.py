"""vLLM's lora_shrink and lora_expand, called as its Punica wrapper calls them for a linear layer.

As its loader does, B is multiplied by the scale of its adapter when it is prepared, and the ops get a scale of 1.
"""

import importlib
import os

from lora_bench import peers
from lora_bench.peers import _torch, _tuned_files, _unpacked
from lora_bench.peers._torch import Batch, torch

OPS = "vllm.lora.ops.triton_ops."
CHOSEN = peers.chosen
HALVES = ("shrink", "expand")


def op(module):
    return importlib.import_module(OPS + module)


def load():
    modules = ("lora_shrink_op", "lora_expand_op", "lora_kernel_metadata", "utils")
    version = _unpacked.load("vllm", stand_ins, lambda: [op(module) for module in modules])
    folder = op("utils").envs.VLLM_TUNED_CONFIG_FOLDER
    if not folder:
        return f"{version}, grid of active adapters, default configs (it ships none)"
    files = sorted(name for name in os.listdir(folder) if name.endswith(("_SHRINK.json", "_EXPAND_TRUE.json")))
    return f"{version}, grid of active adapters, tuned configs in {folder}: {', '.join(files) or 'none'}"


def filled(data, dtype, device):
    """A table of whole numbers on the device without a copy from the host: a graph may record the first launch on a set
    of weights, for which vLLM makes a table of addresses."""
    table = torch.empty(len(data), dtype=torch.int64, device=device)
    for place, number in enumerate(data):
        table[place].fill_(number)
    return table.view(dtype)


def stand_ins():
    import logging

    import triton
    import triton.language as tl

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
            "vllm.utils.torch_utils": {"direct_register_custom_op": refuse, "async_tensor_h2d": filled}}


def shipped(problem):
    """The launch parameters of both halves: its defaults, or those of a file that it found."""
    asked = {"max_loras": problem.slots + 1, "batch": problem.tokens, "rank": problem.max_rank, "num_slices": problem.slices}
    configs = op("utils").get_lora_op_configs
    return {"shrink": dict(configs("shrink", hidden_size=problem.in_features, **asked)),
            "expand": dict(configs("expand", hidden_size=max(problem.widths), add_inputs=True, **asked))}


def tuned_files(found):
    return _tuned_files.vllm(_torch.gpu_name(), found)


class Metadata:
    """What its wrapper makes for each batch, and tables of addresses of this batch's weights alone: vLLM keeps those by
    address, where those of another step may have stood."""

    def __init__(self, problem):
        self.batch = problem.once(Batch)
        self.tables = {}, {}
        self.chosen = CHOSEN and CHOSEN(problem)
        meta = op("lora_kernel_metadata").LoRAKernelMeta.make(problem.slots, problem.tokens, device=self.batch.device)
        rank = problem.rank
        ids = [slot if slot >= 0 and rank[slot] > 0 else -1 for slot in problem.adapter_of_token]
        meta.prepare_tensors(self.batch.numbers(ids, torch.int64))
        self.arguments = meta.meta_args(problem.tokens, True)
        shape = (problem.slices, problem.tokens, problem.max_rank)
        self.h = torch.empty(shape, dtype=torch.float32, device=self.batch.device)


def weights_of(step, metadata):
    views = _torch.separate(step.problem).views(step)
    utils = op("utils")
    utils._LORA_A_PTR_DICT, utils._LORA_B_PTR_DICT = metadata.tables
    utils.async_tensor_h2d = filled
    for half in HALVES:
        taken = metadata.chosen and (lambda *names, half=half, **sizes: metadata.chosen[half])
        op(f"lora_{half}_op").get_lora_op_configs = taken or utils.get_lora_op_configs
    return views[:step.slices], views[step.slices:]


def run_shrink(step, metadata, a, h):
    with metadata.batch.memory():
        op("lora_shrink_op").lora_shrink(_torch.x_of(step), a, h, *metadata.arguments, 1.0)


def run_expand(step, metadata, h, b):
    with metadata.batch.memory():
        op("lora_expand_op").lora_expand(h, b, _torch.view(step.y), *metadata.arguments, offset_start=step.offset_start,
                                         add_inputs=bool(step.add_inputs))


def linear(step):
    metadata = step.problem.once(Metadata)
    a, b = weights_of(step, metadata)
    run_shrink(step, metadata, a, metadata.h)
    run_expand(step, metadata, metadata.h, b)


def logits(step):
    linear(step)


def shrink(step):
    metadata = step.problem.once(Metadata)
    a, _ = weights_of(step, metadata)
    run_shrink(step, metadata, a, _torch.view(step.h))


def expand(step):
    metadata = step.problem.once(Metadata)
    _, b = weights_of(step, metadata)
    run_expand(step, metadata, _torch.view(step.h), b)


def shrink_alone(problem):
    if problem.scale_at == "shrink":
        return "applies no scale in shrink: its B has it (--set scale_at=expand)"
    if problem.h_dtype != "fp32":
        return "keeps h in fp32"
    return _torch.supports_shrink(problem)


def expand_alone(problem):
    if problem.scale_at == "expand":
        return "has the scale in its B, rounded to 16 bits (--set scale_at=shrink)"
    return _torch.supports_expand(problem)


def prepare_shrink(step):
    _torch.prepare_separate(step, has_b=False)


def prepare_expand(step):
    _torch.prepare_separate(step, has_a=False, scaled=False)


COMMON = {"prepared_bytes": lambda problem: _torch.separate(problem).bytes, "device": _unpacked.device(),
          "summation": "Triton, fp32 sums of parts of K by atomics; h in fp32, 16 bits for expand; delta in 16 bits"}
peers.backends([linear, logits], load, supports=_unpacked.triton_supports(_torch.supports), prepare=_torch.prepare_separate, **COMMON,
               **_torch.declared(scaled_b=True, deterministic=False, intermediate="fp32"))
peers.backends([shrink], load, supports=_unpacked.triton_supports(shrink_alone), prepare=prepare_shrink, **COMMON,
               **_torch.declared(deterministic=False, intermediate="fp32", partial="fp32"))
peers.backends([expand], load, supports=_unpacked.triton_supports(expand_alone), prepare=prepare_expand, **COMMON,
               **_torch.declared(casts_h=True))
