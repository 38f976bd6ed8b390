"""A search over launch parameters: for each shape one parameter after the other, all of its values beside each other.

What times them is handed in. A value replaces what is there where it is quicker by more than the noise.
"""

# What is tried for each parameter, those first that matter most.
VLLM = {
    ("shrink", "split_k"): [1, 2, 4, 8, 16, 32, 64], ("shrink", "block_k"): [32, 64, 128, 256, 512],
    ("shrink", "block_n"): [16, 32, 64], ("shrink", "block_m"): [16, 32, 64], ("shrink", "num_warps"): [1, 2, 4, 8],
    ("shrink", "num_stages"): [2, 3, 4], ("expand", "block_n"): [32, 64, 128, 256, 512],
    ("expand", "block_m"): [16, 32, 64, 128], ("expand", "block_k"): [16, 32, 64], ("expand", "num_warps"): [1, 2, 4, 8],
    ("expand", "num_stages"): [1, 2, 3]}
CSGMV = {
    ("shrink", "BLOCK_K"): [64, 128, 256, 512], ("shrink", "BLOCK_N"): [16, 32, 64], ("shrink", "num_warps"): [1, 2, 4, 8],
    ("shrink", "num_stages"): [2, 3, 4], ("expand", "BLOCK_N"): [32, 64, 128, 256], ("expand", "BLOCK_K"): [16, 32, 64],
    ("expand", "num_warps"): [1, 2, 4, 8], ("expand", "num_stages"): [1, 2, 3]}
DENSE = {
    ("families",): [("grouped", "grouped"), ("grouped", "per_row"), ("per_row", "per_row"), ("all_slots", "per_row")],
    ("block_size",): [16, 32, 64], ("a_tiles", "SPLIT_K"): [1, 2, 4, 8, 16], ("a_tiles", "SPLIT_MODE"): ["serial", "planes"],
    ("a_tiles", "BLOCK_SIZE_K"): [64, 128, 256, 512, 1024], ("a_tiles", "BLOCK_SIZE_N"): [4, 16, 32, 64],
    ("a_tiles", "num_warps"): [1, 2, 4, 8], ("b_tiles", "BLOCK_SIZE_N"): [64, 128, 256, 512],
    ("b_tiles", "num_warps"): [1, 2, 4, 8], ("b_tiles", "num_stages"): [2, 3, 4]}


def changed(chosen, parameter, value):
    """A copy with one parameter of another value; None where that makes nothing that is known to be refused."""
    if parameter == ("families",):
        a, b = value
        tiles = {name: kept for name, kept in chosen["a_tiles"].items() if a == "grouped" or not name.startswith("SPLIT_")}
        return {**chosen, "a_family": a, "b_family": b, "a_tiles": tiles}
    if len(parameter) == 1:
        return {**chosen, parameter[0]: value}
    part, name = parameter
    if name.startswith("SPLIT_") and chosen.get("a_family", "grouped") != "grouped":
        return None
    return {**chosen, part: {**chosen[part], name: value}}


def search(as_shipped, shipped, space, times_of, passes=1, told=lambda line: None):
    """Of each shape what it is best launched with, and the quotient of its time to that as shipped. `as_shipped` has times
    with their noise, `shipped` parameters, both by shape. times_of(candidates) takes a list of {shape: parameters} and
    returns for each {shape: (time, noise)}, without what did not pass."""
    best, time = dict(shipped), dict(as_shipped)
    for number in range(passes):
        for parameter, values in space.items():
            candidates = [{shape: other for shape in time
                           if (other := changed(best[shape], parameter, value)) not in (None, best[shape])} for value in values]
            candidates = [candidate for candidate in candidates if candidate]
            for candidate, timed in zip(candidates, times_of(candidates)):
                for shape, (us, noise) in timed.items():
                    if us + noise < time[shape][0]:
                        time[shape], best[shape] = (us, noise), candidate[shape]
            gain = sum(us < as_shipped[shape][0] for shape, (us, _) in time.items())
            told(f"pass {number + 1}, {'.'.join(parameter)}: {gain} of {len(time)} shapes quicker than as shipped")
    return {shape: (best[shape], us / as_shipped[shape][0]) for shape, (us, _) in time.items()}
