"""python3 -m lora_bench.peers unpack WHEEL... --to DIR
python3 -m lora_bench.peers tune --for vllm|sglang SCENARIO... --out DIR

  pip download --no-deps -d wheels vllm==0.33.0 sglang==0.5.23
  python3 -m lora_bench.peers unpack wheels/*.whl --to unpacked
  LORA_BENCH_PEER_MODULES=unpacked lora-bench run anchors --backends auto,peer:vllm

`unpack` takes the modules of LoRA ops out of wheels where the whole package is too heavy. One folder holds
one version of each package. `tune` searches launch parameters on this GPU and writes the files that the
engine loads; `lora-bench tune --for` calls it.
"""

import argparse
import sys

import lora_bench
from lora_bench.peers import _tune, _unpack


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.format_usage()}lora_bench.peers: {message}\n")


def main():
    parser = Parser(prog="python3 -m lora_bench.peers", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    unpack = commands.add_parser("unpack")
    unpack.add_argument("wheels", nargs="+", metavar="WHEEL")
    unpack.add_argument("--to", required=True, metavar="DIR", help="made if missing")
    tune = commands.add_parser("tune")
    tune.add_argument("scenarios", nargs="+", metavar="SCENARIO")
    tune.add_argument("--for", dest="engine", choices=sorted(_tune.ENGINES), required=True)
    tune.add_argument("--out", required=True, metavar="DIR", help="made if missing")
    tune.add_argument("--case", action="append", default=[], metavar="GLOB", help="cases of these ids")
    tune.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of `lora-bench run`")
    tune.add_argument("--passes", type=int, default=1, help="over all parameters [1]")
    tune.add_argument("--time-limit", type=float, default=600, metavar="SECONDS",
                      help="after which no candidates are tried any more [600]")
    options = parser.parse_args()
    try:
        if options.command == "tune":
            return _tune.main(options)
        for line in _unpack.unpack(options.wheels, options.to):
            print(line)
    except lora_bench.Error as error:
        print(f"lora_bench.peers: {error}", file=sys.stderr)
        return error.exit_code or 5
    except ValueError as error:
        print(f"lora_bench.peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
