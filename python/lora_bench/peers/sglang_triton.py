"""SGLang's triton backend: one segment for each adapter, an expand for one, two or three slices."""

from lora_bench import peers
from lora_bench.peers import _sglang, _torch, _unpacked

MODULES = ("sgemm_lora_a", "sgemm_lora_b", "gate_up_lora_b", "qkv_lora_b")


def load():
    return f"{_sglang.load(lambda: [_sglang.op(module) for module in MODULES])}, {_torch.load()}"


def supports(problem):
    if problem.slices > 3:
        return f"has no expand for {problem.slices} slices"
    if problem.slices == 2 and problem.widths[0] != problem.widths[1]:
        return "has no expand for two slices of unequal width"
    return _sglang.supports(problem)


class Segments(_sglang.Segments):
    def __init__(self, problem):
        longest = max(problem.group_starts[i + 1] - problem.group_starts[i] for i in range(problem.active)) \
            if problem.active else 1
        super().__init__(problem, longest)


def expand(step, segments, h, b, info):
    """The op that its layers call for so many slices."""
    y = _torch.y_of(step)
    if step.slices == 1:
        _sglang.op("sgemm_lora_b").sgemm_lora_b_fwd(h, b, info, y)
    elif step.slices == 2:
        _sglang.op("gate_up_lora_b").gate_up_lora_b_fwd(h, b, info, step.widths[0], y)
    else:
        _sglang.op("qkv_lora_b").qkv_lora_b_fwd(h, b, info, segments.offsets, max(step.widths), y)


def linear(step):
    segments = step.problem.once(Segments)
    if not segments.batch.groups:
        return
    a, b = _sglang.weights_of(step)
    info = segments.of(step)
    with segments.batch.memory():
        h = _sglang.op("sgemm_lora_a").sgemm_lora_a_fwd(_torch.x_of(step), a, info, step.slices)
        expand(step, segments, h, b, info)


def logits(step):
    linear(step)


peers.backends([linear, logits], load, device=_unpacked.device(), supports=_unpacked.triton_supports(supports), prepare=_sglang.prepare,
               prepared_bytes=_sglang.prepared_bytes, summation="Triton, fp32 sums; h and delta in 16 bits; nothing is tuned",
               **_torch.declared())
