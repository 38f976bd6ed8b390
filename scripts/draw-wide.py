#!/usr/bin/env python3
"""Draws the points of scenarios/auto-wide.yaml: steps that nobody chose.

  scripts/draw-wide.py [--seed 1] [--points 160] [--most-bytes 1e9] > scenarios/auto-wide.yaml

Each point has a model and layer, 1 to 16384 tokens, 1 to 512 adapters, a rank from 4 to 256 and a law,
the numbers drawn evenly over their logarithms. Points of more bytes of operands are drawn anew.
"""
import argparse
import random

MODELS = {"llama-3.1-8b": (4096, 6144, 14336, 4096), "llama-3.1-70b": (8192, 10240, 28672, 8192),
          "qwen3-32b": (5120, 10240, 25600, 8192), "gemma-3-27b": (5376, 8192, 21504, 4096),
          "phi-3-medium": (5120, 7680, 17920, 5120)}  # hidden, qkv, intermediate, heads
LAYERS = ("qkv", "o", "gate_up", "down")
RANKS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LAWS = ("uniform", "uniform", "{zipf: 1.0}", "{zipf: 1.5}", "{hot: 80%}", "one-vs-rest")
HEAD = """\
# Does `auto` stand near the floor, and before every other backend, on steps that nobody chose? Drawn by
# `scripts/draw-wide.py{arguments}`: change that, not this.
name: auto-wide
question: Does auto hold on shapes that nobody listed what it does on the anchors?
tags: [auto]
dtype: bf16
backends: [auto, grouped, chunked, bgmv]
measure: {{warmup_ms: 50, min_time_ms: 30, max_time_ms: 200}}
cases:"""


def sizes(model, layer):
    hidden, qkv, intermediate, heads = MODELS[model]
    return {"qkv": (hidden, qkv), "o": (heads, hidden), "gate_up": (hidden, 2 * intermediate),
            "down": (intermediate, hidden)}[layer]


def between(draw, least, most):
    """Evenly over the logarithm, both ends too."""
    return min(most, int(least * (most / least + 1e-9) ** draw.random() + 0.5))


def point(draw, most_bytes):
    while True:
        model, layer = draw.choice(list(MODELS)), draw.choice(LAYERS)
        k, n = sizes(model, layer)
        tokens, rank = between(draw, 1, 16384), draw.choice(RANKS)
        slots = min(between(draw, 1, 512), tokens)
        slices = {"qkv": 3, "gate_up": 2}.get(layer, 1)
        weights = slots * rank * (slices * k + n)
        if 2 * (weights + tokens * (k + 2 * n)) <= most_bytes:
            break
    if slots == 1:
        law = "identical"
    elif slots == tokens:
        law = "distinct"
    else:
        law = draw.choice(LAWS)
    kind = draw.choice(("decode", "prefill", "mixed")) if tokens >= 512 else "decode"
    batch = {"decode": tokens}
    if kind != "decode":
        sequences = min(slots, 64)
        length = tokens // (sequences + (1 if kind == "mixed" else 0))
        batch = {"prefill": f"{sequences}x{length}"}
        if kind == "mixed":
            batch["decode"] = max(1, length)
        law = "blocks" if kind == "prefill" and slots > 1 else law
        tokens = sequences * length + batch.get("decode", 0)
    return model, layer, kind, tokens, slots, rank, law, batch


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.format_usage()}draw-wide.py: {message}\n")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", type=int, default=160)
    parser.add_argument("--most-bytes", type=float, default=1e9)
    options = parser.parse_args()
    if options.points < 1:
        parser.error(f"--points {options.points}: a scenario has one point at least")
    draw = random.Random(options.seed)
    arguments = "".join(f" --{key.replace('_', '-')} {value:g}" for key, value in vars(options).items() if value != parser.get_default(key))
    print(HEAD.format(arguments=arguments))
    for number in range(1, options.points + 1):
        model, layer, kind, tokens, slots, rank, law, batch = point(draw, options.most_bytes)
        described = ", ".join(f"{key}: {value}" for key, value in batch.items())
        print(f"  - {{name: {number:03}-{layer}-{kind}{tokens}-a{slots}-r{rank}, model: {model}, layers: {layer}, "
              f"batch: {{{described}}}, skew: {law}, adapters: {{slots: {slots}, rank: {rank}}}}}")


if __name__ == "__main__":
    main()
