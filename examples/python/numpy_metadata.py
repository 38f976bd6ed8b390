"""Index arrays of a batch, as vLLM's kernels take them, made by NumPy on a host.

`lora-bench run metadata --filter form=kernel --backends ./numpy_metadata.py`; docs/python.md says
what a step has.
"""

import lora_bench
import numpy as np


def what_it_does(step):
    return None if step.form == "kernel" else f"makes form kernel, not {step.form}"


@lora_bench.backend(device="cpu", supports=what_it_does)
def metadata(step):
    request = np.asarray(step.inputs["request_of_token"])
    slot_of_request = np.asarray(step.inputs["slot_of_request"])
    out = {name: np.asarray(tensor) for name, tensor in step.outputs.items()}
    slots = np.where(request < 0, -1, slot_of_request[request])
    found, counts = np.unique(slots, return_counts=True)
    if slots.max(initial=-1) < 0:  # nothing is launched for such a batch
        found, counts = found[:0], counts[:0]
    out["adapter_of_token"][:] = slots
    out["token_order"][:] = np.argsort(slots, kind="stable")
    for name, values, rest in (("active_ids", found, -1), ("counts", counts, 0),
                               ("starts", np.concatenate(([0], np.cumsum(counts))), 0)):
        out[name][:] = rest
        out[name][:len(values)] = values
    out["active"][0] = len(found)
    out["no_adapter"][0] = len(found) == 0
