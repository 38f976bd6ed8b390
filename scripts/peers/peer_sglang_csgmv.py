"""SGLang's csgmv, its default LoRA backend: chunks of 16 rows unless LORA_CHUNK asks for another size."""
import inspect
import os

import sglang_steps
import torch_steps

LIBRARY = "torch"
CHUNK = int(os.environ.get("LORA_CHUNK", "16"))  # --max-lora-chunk-size of its server, 16 by default


def available(folder):
    version = sglang_steps.available(folder, ("chunked_sgmv_shrink", "chunked_sgmv_expand", "lora_tuning_config"))
    return f"{version}, at most {CHUNK} rows a chunk, tuned configs where it ships them"


supports = torch_steps.supports


def declared(case):
    numerics, text = sglang_steps.declared(case)
    configs = sglang_steps.op("lora_tuning_config")
    chunk, slices = chunk_of(case), len(case.widths)
    for kernel, size in (("shrink", case.in_features), ("expand", sum(case.widths))):
        tuned = configs.get_lora_configs(kernel, size, case.max_rank, slices) is not None
        used = getattr(configs, f"get_lora_{kernel}_config")(size, case.max_rank, slices, chunk)
        text += f"; {kernel} {'tuned' if tuned else 'default'} {used}"
    return numerics, text


def chunk_of(case):
    """Its rule: larger chunks for larger batches, up to what the server allows."""
    return min(CHUNK, 128 if case.tokens >= 256 else 32 if case.tokens >= 64 else 16)


def prepare(case, x, y, arrays):
    for half in ("shrink", "expand"):
        sglang_steps.forget_compiled(f"chunked_sgmv_{half}", f"_chunked_lora_{half}_kernel")
    expand = sglang_steps.op("chunked_sgmv_expand").chunked_sgmv_lora_expand_forward
    offsets = sglang_steps.offsets(case, x)
    more = {"slice_offsets_cpu": offsets} if "slice_offsets_cpu" in inspect.signature(expand).parameters else {}
    return {"case": case, "x": x, "y": y, "batch": sglang_steps.batch(case, x, chunk_of(case)), "expand": expand,
            "shrink": sglang_steps.op("chunked_sgmv_shrink").chunked_sgmv_lora_shrink_forward,
            "slices": {"slice_offsets": offsets.to(x.device), "max_slice_size": max(case.widths), **more}}


def operands(state, a, b):
    return sglang_steps.packed_weights(state["case"], a, b)


def launch(state, operands):
    a, b = operands
    h = state["shrink"](state["x"], a, state["batch"], len(state["case"].widths))
    state["expand"](h, b, state["batch"], base_output=state["y"], **state["slices"])
