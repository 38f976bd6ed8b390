"""A search over launch parameters: for each shape every value of every parameter alone, then the best of them together.

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


def together(chosen, changes):
    """A copy with several parameters of other values, as far as they go together."""
    for parameter, value in changes:
        chosen = changed(chosen, parameter, value) or chosen
    return chosen


def search(as_shipped, shipped, space, times_of, passes=1, told=lambda line: None):
    """Of each shape what it is best launched with, and the quotient of its time to that as shipped. `as_shipped` has times
    with their noise, `shipped` parameters, both by shape. times_of(candidates) takes a list of {shape: parameters} and
    returns for each {shape: (time, noise)}, without what did not pass.

    A pass tries each value of each parameter, all else as it was best before; then, for each shape, the best values of the
    parameters that helped most: of two of them, of three, and so on."""
    best, time = dict(shipped), dict(as_shipped)

    def take(candidates):
        candidates = [{shape: chosen for shape, chosen in one.items() if chosen not in (None, best[shape])} for one in candidates]
        timed = times_of([one for one in candidates if one])
        found = [timed.pop(0) if one else {} for one in candidates]
        before = dict(time)
        for candidate, times in zip(candidates, found):
            for shape, (us, noise) in times.items():
                if us + noise < time[shape][0]:
                    time[shape], best[shape] = (us, noise), candidate[shape]
        return [{shape: us for shape, (us, noise) in times.items() if us + noise < before[shape][0]} for times in found]

    for number in range(passes):
        start = dict(best)
        tried = [(parameter, value) for parameter, values in space.items() for value in values]
        gains = take([{shape: changed(start[shape], *one) for shape in time} for one in tried])
        helpful = {}  # of each shape the best value of each parameter that has one, in order of time
        for shape in time:
            by_time = sorted((gain[shape], place) for place, gain in enumerate(gains) if shape in gain)
            values = {}
            for _, place in by_time:
                values.setdefault(tried[place][0], place)
            helpful[shape] = list(values.values())
        most = max(map(len, helpful.values()), default=0)
        # In the order of the table: what a family cannot take is left out behind it.
        take([{shape: together(start[shape], [tried[place] for place in sorted(places[:count])])
               for shape, places in helpful.items() if len(places) >= count} for count in range(2, most + 1)])
        gain = sum(us < as_shipped[shape][0] for shape, (us, _) in time.items())
        told(f"pass {number + 1}: {gain} of {len(time)} shapes quicker than as shipped")
    return {shape: (best[shape], us / as_shipped[shape][0]) for shape, (us, _) in time.items()}
