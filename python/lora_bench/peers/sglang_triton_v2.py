"""SGLang's newer dense engine, triton_v2: two kernels, chosen by its tables of plans for rows, rank, K and N.

Shrink and expand follow one another here; in a server many plans run shrink beside the base product.
"""

import functools
import importlib
import os
import types

from lora_bench import peers
from lora_bench.peers import _sglang, _torch, _tuned_files, _unpacked
from lora_bench.peers._torch import Batch, torch

MOST_ROWS_OF_DECODE = 512  # beyond, a batch counts as prefill
DENSE = "sglang.srt.lora.dense."
CHOSEN = peers.chosen


def module(name):
    return importlib.import_module(name)


def load():
    version = _sglang.load(lambda: (plans(), module(DENSE + "runner")))
    folder = os.environ.get("SGLANG_LORA_DENSE_CONFIG_DIR")
    return f"{version}, plans {f'of {folder}' if folder else 'that it ships'}"


@functools.lru_cache(maxsize=None)
def plans():
    """Its module of plans, which needs pydantic to check a table; without, tables are read as they are."""
    try:
        import pydantic
    except ImportError:
        import sys
        stand_in = types.ModuleType("pydantic")
        stand_in.BaseModel = object
        stand_in.ConfigDict = stand_in.Field = lambda **options: None
        stand_in.model_validator = lambda **options: lambda function: function
        sys.modules["pydantic"] = stand_in
        try:
            found = module(DENSE + "plan")
        finally:
            del sys.modules["pydantic"]
        found.load_plans = module(DENSE + "runner").load_plans = unchecked_plans
        return found
    return module(DENSE + "plan")


def unchecked_plans(architecture):
    plan = module(DENSE + "plan")
    raw = plan._read_table(f"{architecture}.plans.json")
    return raw and types.SimpleNamespace(rows=[row_of_plans(plan, row) for row in raw["rows"]])


def row_of_plans(plan, row):
    spec = dict(row.get("spec", {}))
    for name, kind in (("a_family", plan.AFamily), ("b_family", plan.BFamily), ("overlap", plan.Overlap)):
        if name in spec:
            spec[name] = kind(spec[name])
    bounds = {f"{end}_{name}_features": None for end in ("min", "max") for name in ("in", "out")}
    given = {"max_tokens": None, "max_rank": None, **bounds, **row}
    given["phase"] = plan.Phase(row["phase"]) if row.get("phase") else None
    given["kinds"] = [plan.DenseLoraKind(kind) for kind in row["kinds"]] if row.get("kinds") else None
    given["spec"] = types.SimpleNamespace(a_family=spec.get("a_family"), model_dump=lambda: spec)
    return types.SimpleNamespace(**given)


def architecture():
    utils = module("sglang.srt.lora.utils")
    return utils.architecture_for_capability(torch.cuda.get_device_capability()[0]) if _torch.has_gpu() else "default"


def plan_of(problem):
    plan = plans()
    chosen = CHOSEN and CHOSEN(problem)
    if chosen:
        families = {"a_family": plan.AFamily(chosen["a_family"]), "b_family": plan.BFamily(chosen["b_family"]),
                    "overlap": plan.Overlap(chosen["overlap"])}
        return plan, plan.DensePlan(**{**chosen, **families})
    kind = plan.DenseLoraKind.LM_HEAD if problem.op == "logits" else plan.DenseLoraKind.LINEAR
    phase = plan.Phase.DECODE if problem.tokens <= MOST_ROWS_OF_DECODE else plan.Phase.PREFILL
    table = plan.DensePlanTable(architecture(), problem.max_rank)
    return plan, table.plan_for(kind, phase, problem.tokens, problem.in_features, sum(problem.widths))


def shipped(problem):
    """The plan that its tables have."""
    _, plan = plan_of(problem)
    return {"a_family": plan.a_family.value, "b_family": plan.b_family.value, "overlap": plan.overlap.value,
            "block_size": plan.block_size, "a_tiles": dict(plan.a_tiles), "b_tiles": dict(plan.b_tiles)}


def tuned_files(found):
    raw = plans()._read_table(f"{architecture()}.plans.json")
    return _tuned_files.dense(architecture(), MOST_ROWS_OF_DECODE, raw or {}, found)


def summation(problem):
    _, plan = plan_of(problem)
    a, b = ("x".join(str(value) for value in tiles.values()) for tiles in (plan.a_tiles, plan.b_tiles))
    return f"Triton, fp32; {plan.a_family.value} {a}, {plan.b_family.value} {b}, {plan.block_size} rows"


def route_of(problem, batch, block, capacity):
    """What its builders make for a batch: rows of each adapter in blocks of their own, those without one in blocks of
    -1 behind them, the rest of what is reserved empty."""
    idle = sorted(set(range(problem.tokens)) - {row for group in batch.groups for row in group.rows})
    rows, owners = [], []
    for adapter, some in [(group.adapter, group.rows) for group in batch.groups] + [(-1, idle)]:
        blocks = -(-len(some) // block)
        rows += some + [problem.tokens] * (blocks * block - len(some))
        owners += [adapter] * blocks
    whole = -(-capacity // block)
    return types.SimpleNamespace(
        block_size=block, num_rows=problem.tokens, num_tokens=problem.tokens, width=1, groups_per_slot=1,
        max_loras=problem.slots, group_ids=None,
        sorted_pair_ids=batch.numbers(rows + [problem.tokens] * (capacity - len(rows))),
        block_bucket_ids=batch.numbers(owners + [-1] * (whole - len(owners))),
        num_pairs_post_padded=batch.numbers([len(rows)]))


def host_geometry(offsets, block_size_n, device):
    """What slice_geometry makes on a GPU."""
    widths = [end - begin for begin, end in zip(offsets, offsets[1:])]
    same = len(set(widths)) == 1
    return module("sglang.kernels.ops.lora.common.lora_b").SliceGeometry(
        slice_offsets=torch.tensor(offsets, dtype=torch.int32), out_offsets=torch.tensor(offsets[:-1], dtype=torch.int32),
        num_slices=len(widths), num_column_tiles=sum(-(-width // block_size_n) for width in widths),
        uniform_width=widths[0] if same else 0, out_stride=widths[0] if same else 0,
        full_tiles=all(width % block_size_n == 0 for width in widths), block_size_n=block_size_n)


class Engine:
    """Its runner with the routes of a batch, which are made before any time is taken."""

    def __init__(self, problem):
        self.batch = batch = problem.once(Batch)
        plan, self.plan = plan_of(problem)
        runner = module(DENSE + "runner")
        workspace = module("sglang.srt.lora.workspace").LoraWorkspace()
        workspace._caller = lambda device: 0  # its memory serves every stream: a set runs after another
        self.runner = runner.DenseLoraRunner(workspace, max_loras=problem.slots, device=torch.device(batch.device),
                                             architecture=architecture())
        rank = problem.rank
        self.slots = batch.numbers([slot if slot >= 0 and rank[slot] > 0 else -1 for slot in problem.adapter_of_token])
        self.ranks = batch.numbers(rank)
        phase = plan.Phase.DECODE if problem.tokens <= MOST_ROWS_OF_DECODE else plan.Phase.PREFILL
        capacity = module("sglang.kernels.ops.lora.common.routing")._aligned_route_capacity
        block = self.plan.block_size
        route = route_of(problem, batch, block, capacity(problem.tokens, block, problem.slots))
        raw = types.SimpleNamespace(block_size=1, num_rows=problem.tokens, num_tokens=problem.tokens, width=1,
                                    groups_per_slot=1, max_loras=problem.slots, group_ids=None)
        for one in (route, raw):
            one.token_slots = one.kernel_groups = self.slots
        self.begin = lambda scale: self.runner.begin_batch(
            token_slots=self.slots, lora_ranks=self.ranks, scalings=scale, num_tokens=problem.tokens, phase=phase,
            graph_mode=False)
        if batch.device == "cpu":  # Triton's interpreter, where tables of offsets are looked for on a GPU
            runner.slice_geometry = host_geometry
        # Kept from here on: no graph may record how it is made.
        runner.slice_geometry(tuple(batch.offsets), int(self.plan.b_tiles["BLOCK_SIZE_N"]), torch.device(batch.device))
        self.runner.route = lambda block_size: route
        self.runner.raw_route = lambda: raw


def linear(step):
    engine = step.problem.once(Engine)
    if not engine.batch.groups:
        return
    a, b = _sglang.weights_of(step)
    engine.begin(_torch.view(step.scale))
    with engine.batch.memory():
        bridge = engine.runner.run_a(_torch.x_of(step), a, stack=step.slices, plan=engine.plan)
        engine.runner.run_b(bridge, b, _torch.y_of(step), offsets=tuple(engine.batch.offsets), plan=engine.plan)


def logits(step):
    linear(step)


peers.backends([linear, logits], load, device=_unpacked.device(), supports=_unpacked.triton_supports(_torch.supports), prepare=_sglang.prepare,
               prepared_bytes=_sglang.prepared_bytes, summation=summation, **_torch.declared(rounds_delta=False))
