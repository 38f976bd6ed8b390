"""The files from which engines read launch parameters, made of what a search found.

Each function returns texts by path below the folder that a variable of the engine names. `found` is a list of
(Shape, parameters): by half for vLLM and csgmv, a plan for SGLang's dense engine; `worth` is how much time they save.
"""

import collections
import copy
import json

Shape = collections.namedtuple("Shape", "slots tokens rank in_features widths logits")
Found = collections.namedtuple("Found", "shape chosen quotient")  # time tuned over time as shipped

MOST_SLICES = 4  # for which a file of vLLM has entries: it looks for that of a layer and knows no nearest


def _text(content):
    return json.dumps(content, indent=1) + "\n"


def _put(table, keys, value):
    for key in keys[:-1]:
        table = table.setdefault(str(key), {})
    table[str(keys[-1])] = value


def _best(found, key_of):
    """For each key the parameters of the shape that they help most: what several shapes share has one entry."""
    best = {}
    for one in found:
        key = key_of(one.shape)
        if key not in best or one.quotient < best[key].quotient:
            best[key] = one
    return best


def vllm(gpu, found):
    """{GPU}_SHRINK.json and {GPU}_EXPAND_TRUE.json: by max_loras, slices, rows, k, n. What vLLM calls max_loras there is
    one more than the adapters that it holds."""
    gpu = gpu.replace(" ", "_").replace("-", "_")
    files = {}
    for half, name in (("shrink", "SHRINK"), ("expand", "EXPAND_TRUE")):
        table = {}

        def key_of(shape):
            sizes = (shape.in_features, shape.rank) if half == "shrink" else (shape.rank, max(shape.widths))
            return (shape.slots + 1, len(shape.widths), shape.tokens, *sizes)
        for key, one in _best(found, key_of).items():
            _put(table, key, one.chosen[half])
        for by_slices in table.values():
            # Nearest sizes are taken for each number but that of slices, whose absence is an error.
            for slices in range(1, MOST_SLICES + 1):
                nearest = min(by_slices, key=lambda known: abs(int(known) - slices))
                by_slices.setdefault(str(slices), copy.deepcopy(by_slices[nearest]))
        files[f"{gpu}_{name}.json"] = _text(table)
    return files


def csgmv(gpu, triton_version, chunk_of, found):
    """csgmv_configs/triton_X_Y_Z/lora_{half},K=,R=,S=,device=.json, each by rows of a chunk."""
    folder = f"csgmv_configs/triton_{triton_version.replace('.', '_')}"
    tables = {}
    for half in ("shrink", "expand"):
        def key_of(shape):
            size = shape.in_features if half == "shrink" else sum(shape.widths)
            return size, shape.rank, len(shape.widths), chunk_of(shape)
        for (size, rank, slices, chunk), one in _best(found, key_of).items():
            name = f"lora_{half},K={size},R={rank},S={slices},device={gpu.replace(' ', '_')}.json"
            tables.setdefault(f"{folder}/{name}", {})[str(chunk)] = one.chosen[half]
    return {name: _text(table) for name, table in tables.items()}


def dense(architecture, most_rows_of_decode, shipped, found):
    """{ARCHITECTURE}.plans.json: a row for each shape before those that were shipped, of which the first that fits is
    taken: smaller bounds come first."""
    rows = []

    def key_of(shape):
        phase = "decode" if shape.tokens <= most_rows_of_decode else "prefill"
        return phase, shape.logits, shape.in_features, sum(shape.widths), shape.tokens, shape.rank
    for key, one in sorted(_best(found, key_of).items()):
        phase, logits, in_features, out_features, tokens, rank = key
        rows.append({"name": f"lora-bench.{phase}.k{in_features}.n{out_features}.tokens_le{tokens}.rank_le{rank}",
                     "phase": phase, "kinds": ["lm_head" if logits else "linear"], "max_tokens": tokens,
                     "max_rank": rank, "min_in_features": in_features, "max_in_features": in_features,
                     "min_out_features": out_features, "max_out_features": out_features, "spec": one.chosen})
    return {f"{architecture}.plans.json": _text({"rows": rows + shipped.get("rows", [])})}
