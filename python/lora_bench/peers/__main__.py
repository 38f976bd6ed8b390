"""python3 -m lora_bench.peers unpack WHEEL... --to DIR

  pip download --no-deps -d wheels vllm==0.33.0 sglang==0.5.23
  python3 -m lora_bench.peers unpack wheels/*.whl --to unpacked
  LORA_BENCH_PEER_MODULES=unpacked lora-bench run anchors --backends auto,peer:vllm

takes the modules of LoRA ops out of wheels where the whole package is too heavy. One folder holds one
version of each package.
"""

import argparse
import sys

from lora_bench.peers import _unpack


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.format_usage()}lora_bench.peers: {message}\n")


def main():
    parser = Parser(prog="python3 -m lora_bench.peers", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["unpack"])
    parser.add_argument("wheels", nargs="+", metavar="WHEEL")
    parser.add_argument("--to", required=True, metavar="DIR", help="made if missing")
    options = parser.parse_args()
    try:
        for line in _unpack.unpack(options.wheels, options.to):
            print(line)
    except ValueError as error:
        print(f"lora_bench.peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
