"""SGLang's csgmv, its default LoRA backend: chunks of 16 rows unless LORA_CHUNK asks for another size."""

import inspect
import os

from lora_bench import peers
from lora_bench.peers import _sglang, _torch, _tuned_files, _unpacked
from lora_bench.peers._torch import torch

CHUNK = int(os.environ.get("LORA_CHUNK", "16"))  # --max-lora-chunk-size of its server, 16 by default
KERNELS = ("shrink", "expand")
CHOSEN = peers.chosen


def load():
    modules = ("chunked_sgmv_shrink", "chunked_sgmv_expand", "lora_tuning_config")
    version = _sglang.load(lambda: [_sglang.op(module) for module in modules])
    folder = os.environ.get("SGLANG_LORA_CONFIG_DIR")
    return f"{version}, at most {CHUNK} rows a chunk, configs {f'of {folder}' if folder else 'that it ships'}"


def chunk_of(problem):
    """Its rule: larger chunks for larger batches, up to what the server allows."""
    return min(CHUNK, 128 if problem.tokens >= 256 else 32 if problem.tokens >= 64 else 16)


def configs_of(problem):
    """Of shrink and expand: the launch parameters, and whether a file has them."""
    tuning, chunk, slices = _sglang.op("lora_tuning_config"), chunk_of(problem), problem.slices
    for kernel, size in zip(KERNELS, (problem.in_features, sum(problem.widths))):
        tuned = tuning.get_lora_configs(kernel, size, problem.max_rank, slices) is not None
        yield kernel, tuned, getattr(tuning, f"get_lora_{kernel}_config")(size, problem.max_rank, slices, chunk)


def shipped(problem):
    """The launch parameters of both halves: its defaults, or those of a file that it found."""
    return {kernel: dict(config) for kernel, _, config in configs_of(problem)}


def tuned_files(found):
    import triton
    return _tuned_files.csgmv(_torch.gpu_name(), triton.__version__, chunk_of, found)


def summation(problem):
    told = [f"{kernel} {'tuned' if tuned else 'default'} " + "x".join(str(value) for value in config.values())
            for kernel, tuned, config in configs_of(problem)]
    return f"Triton, fp32 sums; h and delta in 16 bits; chunks of {chunk_of(problem)}; {'; '.join(told)}"


class Segments(_sglang.Segments):
    def __init__(self, problem):
        super().__init__(problem, chunk_of(problem))
        expand = _sglang.op("chunked_sgmv_expand").chunked_sgmv_lora_expand_forward
        self.slices = {"slice_offsets": self.offsets, "max_slice_size": max(problem.widths)}
        if "slice_offsets_cpu" in inspect.signature(expand).parameters:
            self.slices["slice_offsets_cpu"] = torch.tensor(self.batch.offsets, dtype=torch.int32)
        self.chosen = CHOSEN and CHOSEN(problem)
        # The package's own cache of kernels has neither rank nor dtype in its keys, as those of a server never change.
        self.compiled = {half: {} for half in KERNELS}

    def use_own_kernels(self):
        for half, compiled in self.compiled.items():
            kernel = getattr(_sglang.op(f"chunked_sgmv_{half}"), f"_chunked_lora_{half}_kernel")
            if hasattr(kernel, "kernel_cache"):
                kernel.kernel_cache = compiled

    def use_own_parameters(self):
        tuning = _sglang.op("lora_tuning_config")
        for half in KERNELS:
            name = f"get_lora_{half}_config"
            taken = self.chosen and (lambda half=half, **sizes: self.chosen[half])
            setattr(_sglang.op(f"chunked_sgmv_{half}"), name, taken or getattr(tuning, name))


def linear(step):
    segments = step.problem.once(Segments)
    if not segments.batch.groups:
        return
    segments.use_own_kernels()
    segments.use_own_parameters()
    a, b = _sglang.weights_of(step)
    info = segments.of(step)
    with segments.batch.memory():
        h = _sglang.op("chunked_sgmv_shrink").chunked_sgmv_lora_shrink_forward(_torch.x_of(step), a, info, step.slices)
        _sglang.op("chunked_sgmv_expand").chunked_sgmv_lora_expand_forward(h, b, info, base_output=_torch.y_of(step),
                                                                           **segments.slices)


def logits(step):
    linear(step)


peers.backends([linear, logits], load, device=_unpacked.device(), supports=_unpacked.triton_supports(_sglang.supports), prepare=_sglang.prepare,
               prepared_bytes=_sglang.prepared_bytes, summation=summation, **_torch.declared())
