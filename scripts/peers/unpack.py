#!/usr/bin/env python3
"""Takes the modules of LoRA's dense ops, and nothing else, out of wheels of vLLM and SGLang.

  pip download --no-deps -d wheels vllm==0.21.0 sglang==0.5.13
  scripts/peers/unpack.py wheels/*.whl --to peers-unpacked

The folder serves `run.py --unpacked` where the whole package is too heavy for the machine. One folder
holds one version of each package.
"""
import argparse
import fnmatch
import sys
import zipfile

WANTED = ["vllm/envs.py", "vllm/lora/ops/triton_ops/*",
          "sglang/srt/environ.py", "sglang/srt/lora/triton_ops/*",  # until 2026-07
          "sglang/kernels/ops/gemm/*sgmv*", "sglang/kernels/ops/gemm/*lora*", "sglang/kernels/ops/gemm/kernel_utils.py",
          "sglang/kernels/ops/lora/dense/*",
          "vllm-*.dist-info/METADATA", "sglang-*.dist-info/METADATA", "*.dist-info/licenses/LICENSE*"]


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.format_usage()}unpack.py: {message}\n")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", metavar="WHEEL")
    parser.add_argument("--to", required=True, metavar="DIR", help="made if missing")
    options = parser.parse_args()
    for name in options.wheels:
        try:
            with zipfile.ZipFile(name) as wheel:
                files = [i for i in wheel.infolist() if any(fnmatch.fnmatch(i.filename, wanted) for wanted in WANTED)]
                wheel.extractall(options.to, files)
        except (OSError, zipfile.BadZipFile) as error:
            print(f"unpack.py: {name} is no wheel: {error}", file=sys.stderr)
            return 1
        if not any("lora" in file.filename for file in files):
            print(f"unpack.py: {name} has no LoRA ops; this takes wheels of vLLM and SGLang", file=sys.stderr)
            return 1
        print(f"{name}: {len(files)} files, {sum(file.file_size for file in files) / 1024:.0f} KiB to {options.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
