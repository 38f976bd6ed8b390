"""Takes the modules of dense LoRA ops, and nothing else, out of wheels of vLLM and SGLang."""

import fnmatch
import zipfile

WANTED = [
    "vllm/envs.py", "vllm/lora/ops/triton_ops/*.py", "vllm-*.dist-info/METADATA",
    "sglang/srt/environ.py", "sglang/srt/lora/utils.py", "sglang/srt/lora/workspace.py",
    "sglang/srt/lora/dense/*", "sglang/srt/lora/backend/uno_cublas_backend.py",
    "sglang/srt/lora/triton_ops/*",  # until 2026-07
    "sglang/kernels/ops/gemm/*sgmv*", "sglang/kernels/ops/gemm/*lora*", "sglang/kernels/ops/gemm/kernel_utils.py",
    "sglang/kernels/ops/lora/dense/*", "sglang/kernels/ops/lora/common/*", "sglang-*.dist-info/METADATA",
    "*.dist-info/licenses/LICENSE*"]
UNWANTED = ["*/trtllm_lora_temp/*", "*/__init__.py"]


def _is(name, patterns):
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def unpack(wheels, folder):
    """Says a line for each wheel; raises ValueError for one that is none or has no LoRA ops."""
    for name in wheels:
        try:
            with zipfile.ZipFile(name) as wheel:
                files = [file for file in wheel.infolist() if _is(file.filename, WANTED) and not _is(file.filename, UNWANTED)]
                wheel.extractall(folder, files)
        except (OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{name} is no wheel: {error}") from error
        if not any("lora" in file.filename for file in files):
            raise ValueError(f"{name} has no LoRA ops; this takes wheels of vLLM and SGLang")
        yield f"{name}: {len(files)} files, {sum(file.file_size for file in files) / 1024:.0f} KiB to {folder}"
