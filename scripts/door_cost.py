#!/usr/bin/env python3
"""What the way through lora-bench costs a kernel of Triton: its time in a row, over its time in a graph of PyTorch.

  scripts/door_cost.py          needs a GPU, PyTorch and Triton; LORA_BENCH_BINARY names the program

The file is the backend too: kernels that take a few microseconds, where a gap between launches would show most.
Both ways launch it in a graph on warm operands. Outside, the time of a launch is what a graph of 1024 of them takes longer than one of
64: what it costs to start a graph is in neither time. Exits with 2 where a row takes more than 1 % longer than outside.
"""
import statistics
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples" / "python")]

import lora_bench
import torch
import triton
import triton_linear

FEW, MANY, SAMPLES, WARM_UP = 64, 1024, 100, 30


@lora_bench.backend(device="cuda", supports=triton_linear.what_it_does)
def expand(step):
    y, h, b = torch.from_dlpack(step.y), torch.from_dlpack(step.h), torch.from_dlpack(step.b[0])
    launch(y, h[0], b, torch.from_dlpack(step.plan.adapter_of_token), torch.from_dlpack(step.rank))


def launch(y, h, b, adapters, ranks):
    tokens, width = y.shape
    rank = b.shape[2]
    triton_linear.expand[(tokens, triton.cdiv(width, 256))](
        y, h, b, adapters, ranks, width, width, 1, rank, triton.next_power_of_2(rank), 256)


def outside(tokens, width, rank, slots):
    """Time of a launch in us, by events around graphs that PyTorch has recorded."""
    def drawn(*shape):
        return torch.randn(*shape, device="cuda")

    operands = (drawn(tokens, width).bfloat16(), drawn(tokens, rank), drawn(slots, width, rank).bfloat16(),
                torch.arange(tokens, device="cuda", dtype=torch.int32) % slots,
                torch.full((slots,), rank, device="cuda", dtype=torch.int32))
    few, many = (median_of_graph(lambda: launch(*operands), launches) for launches in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def median_of_graph(enqueue, launches):
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        enqueue()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(launches):
                enqueue()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for _ in range(WARM_UP + SAMPLES):
            torch.cuda._sleep(2_000_000)  # about 1 ms, until all is queued
            begin.record(stream)
            graph.replay()
            end.record(stream)
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times[WARM_UP:])


def main():
    shapes = [types.SimpleNamespace(tokens=tokens, width=4096, rank=rank, slots=8)
              for tokens in (1, 32, 256) for rank in (16, 64)]
    cases = [lora_bench.Case(op="expand", scale_at="shrink", layer={"in": 64, "out": [shape.width]},
                             batch={"decode": shape.tokens}, adapters={"slots": shape.slots, "rank": shape.rank},
                             skew="uniform", measure={"cache": "hot"}, dtype="bf16") for shape in shapes]
    worst = 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print("tokens  rank  row us  noise us  outside us   ratio")
    for shape, case in zip(shapes, cases):
        [row] = case.run(backends=[__file__], must_pass=True)
        alone = outside(shape.tokens, shape.width, shape.rank, shape.slots)
        ratio = row["time_us"] / alone
        print(f"{shape.tokens:6}  {shape.rank:4}  {row['time_us']:6.3f}  {row['noise_us']:8.3f}  {alone:10.3f}  {ratio:6.4f}")
        worst = worst if ratio <= 1.01 else 2
    return worst


if __name__ == "__main__":
    sys.exit(main())
