"""Kernels of other projects as backends: `lora-bench run smoke --backends cpu,peer:numpy`.

Each file beside this one whose name does not begin with '_' is a peer, called by its name with '-'
for '_'. None of another project's code is here: a peer calls what is installed.
"""

import importlib.util

import lora_bench

_PEERS = {
    # name: where it runs ("any": on the GPU where there is one), what it imports, what it is
    "numpy": ("cpu", ("numpy",), "NumPy on the host, a product for each adapter and slice"),
}


class Missing(Exception):
    """Why a peer cannot run here: what its rows say."""


def lines():
    """Of each peer its name, where it runs, what it is and why it cannot run here, "" where it can."""
    for name, (device, modules, summary) in _PEERS.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        why = f"no module {absent[0]}: pip install {absent[0]}" if absent else ""
        yield name, device, summary, why


def backends(functions, load, device="cuda", **declared):
    """lora_bench.backend of a peer's functions. `load` imports what runs; where it raises Missing, they are backends
    all the same, and each of their rows is SKIPPED with the reason."""
    try:
        load()
    except Missing as missing:
        reason = str(missing)
        device, declared = "cpu", {"supports": lambda problem: reason}
    for function in functions:
        lora_bench.backend(device=device, **declared)(function)
