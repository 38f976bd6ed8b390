"""SGLang's triton backend: one segment for each adapter, an expand for one, two or three slices."""
import sglang_steps
import torch_steps

LIBRARY = "torch"


def available(folder):
    return sglang_steps.available(folder, ("sgemm_lora_a", "sgemm_lora_b", "gate_up_lora_b", "qkv_lora_b"))


def supports(case):
    if len(case.widths) > 3:
        return f"has no expand for {len(case.widths)} slices"
    if len(case.widths) == 2 and case.widths[0] != case.widths[1]:
        return "has no expand for two slices of unequal width"
    return torch_steps.supports(case)


declared = sglang_steps.declared


def prepare(case, x, y, arrays):
    longest = max((len(rows) for _, rows in case.groups), default=1)
    return {"case": case, "x": x, "y": y, "batch": sglang_steps.batch(case, x, longest),
            "offsets": sglang_steps.offsets(case, x).to(x.device),
            "shrink": sglang_steps.op("sgemm_lora_a").sgemm_lora_a_fwd, "expand": expand_of(case)}


def expand_of(case):
    """The op that its layers call for so many slices, behind one form."""
    if len(case.widths) == 1:
        one = sglang_steps.op("sgemm_lora_b").sgemm_lora_b_fwd
        return lambda state, h, b: one(h, b, state["batch"], state["y"])
    if len(case.widths) == 2:
        two = sglang_steps.op("gate_up_lora_b").gate_up_lora_b_fwd
        return lambda state, h, b: two(h, b, state["batch"], case.widths[0], state["y"])
    three = sglang_steps.op("qkv_lora_b").qkv_lora_b_fwd
    return lambda state, h, b: three(h, b, state["batch"], state["offsets"], max(case.widths), state["y"])


def operands(state, a, b):
    return sglang_steps.packed_weights(state["case"], a, b)


def launch(state, operands):
    a, b = operands
    h = state["shrink"](state["x"], a, state["batch"], len(state["case"].widths))
    state["expand"](state, h, b)
