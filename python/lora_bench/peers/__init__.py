"""Kernels of other projects as backends: `lora-bench run anchors --backends auto,peer:vllm`.

Each file beside this one whose name does not begin with '_' is a peer, called by its name with '-'
for '_'. None of another project's code is here: a peer calls what is installed, or what
`python3 -m lora_bench.peers unpack` took out of a wheel. docs/peers.md says more.
"""

import importlib.util
import os
import pathlib

import lora_bench

# Where the modules of packages lie that are not installed: what `unpack` wrote.
FOLDER = os.environ.get("LORA_BENCH_PEER_MODULES", "")

_SGLANG = ("torch", "triton", "sglang")
_PEERS = {
    # name: where it runs ("any": on the GPU where there is one), what it imports, what it is
    "numpy": ("cpu", ("numpy",), "NumPy on the host, a product for each adapter and slice"),
    "torch-loop": ("any", ("torch",), "PyTorch, a loop over adapters on cuBLAS"),
    "torch-bmm": ("any", ("torch",), "PyTorch, the weights of each row gathered and multiplied in a batch"),
    "torch-grouped": ("cuda", ("torch",), "PyTorch's grouped_mm (2.8 and later), rows sorted by adapter"),
    "vllm": ("cuda", ("torch", "triton", "vllm"), "vLLM's lora_shrink and lora_expand"),
    "sglang-csgmv": ("cuda", _SGLANG, "SGLang's default LoRA backend: chunks of rows of one adapter"),
    "sglang-triton": ("cuda", _SGLANG, "SGLang's triton backend: a segment for each adapter"),
    "sglang-triton-v2": ("cuda", _SGLANG, "SGLang's newer dense engine, by its tables of plans"),
    "sglang-uno-cublas": ("cuda", _SGLANG, "SGLang's cuBLAS products of one adapter"),
    "flashinfer": ("cuda", ("torch", "flashinfer"), "FlashInfer's SegmentGEMMWrapper, rows sorted by adapter"),
}
_PACKAGES = {"flashinfer": "flashinfer-python"}  # where a module is not called as its package


# While a search loads a candidate: of a problem the launch parameters to take, see _candidate.py.
chosen = None


class Missing(Exception):
    """Why a peer cannot run here: what its rows say."""


def lines():
    """Of each peer its name, where it runs, what it is and why it cannot run here, "" where it can."""
    for name, (device, modules, summary) in _PEERS.items():
        absent = [module for module in modules if not _is_here(module)]
        why = f"no module {absent[0]}: pip install {_PACKAGES.get(absent[0], absent[0])}" if absent else ""
        yield name, device, summary, why


def _is_here(module):
    folder = FOLDER and pathlib.Path(FOLDER, module).is_dir()
    return folder or importlib.util.find_spec(module) is not None


def backends(functions, load, device="cuda", **declared):
    """lora_bench.backend of a peer's functions. What `load` returns rows say of what runs, beside the versions of what
    the file imported by name; where it raises Missing, they are backends all the same, and each of their rows is
    SKIPPED with the reason."""
    try:
        declared["versions"] = [told for told in [load()] if told]
    except Missing as missing:
        reason = str(missing)
        device, declared = "cpu", {"supports": lambda problem: reason}
    for function in functions:
        lora_bench.backend(device=device, **declared)(function)
