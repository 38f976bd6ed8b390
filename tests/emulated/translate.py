#!/usr/bin/env python3
"""Kernels as C++ that a host compiler takes: instructions in text become calls of instructions.h, launches calls of
launch.h, shared memory a pointer into the emulated block's. Everything else stays as it is.

  translate.py FOLDER_OF_KERNELS FOLDER_TO_WRITE
"""
import re
import sys
from pathlib import Path

E = "::lora_bench::emulated::"
# What an instruction's text begins with (or holds), and the call; {0}, {1} ... are its operands in their order.
CALLS = [
    (r"^mma\.sync\.aligned\.m16n8k16\S*\.f32\.f16\.f16\.f32", "mma_16_8_16({E}Element::kHalf, {all})"),
    (r"^mma\.sync\.aligned\.m16n8k16\S*\.f32\.bf16\.bf16\.f32", "mma_16_8_16({E}Element::kBf16, {all})"),
    (r"^mma\.sync\.aligned\.m16n8k8\S*\.tf32", "mma_16_8_8({all})"),
    (r"^ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", "ldmatrix({all})"),
    (r"wgmma\.mma_async\S*m64n64k16\.f32\.bf16", "wgmma_registers({E}Element::kBf16, 64, &d[0][0], a, b, add)"),
    (r"wgmma\.mma_async\S*m64n128k16\.f32\.bf16", "wgmma_registers({E}Element::kBf16, 128, sum, a, b, true)"),
    (r"wgmma\.mma_async\S*m64n128k16\.f32\.f16", "wgmma_registers({E}Element::kHalf, 128, sum, a, b, true)"),
    (r"^wgmma\.fence", ""),
    (r"^wgmma\.commit_group", "close_products()"),
    (r"^wgmma\.wait_group\S* %0", "await_products({0})"),
    (r"^wgmma\.wait_group\S* (\d+)", "await_products({g1})"),
    (r"^cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+);", "copy_async({0}, {1}, {g1}, {g1})"),
    (r"^cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+), %2;", "copy_async({0}, {1}, {g1}, {2})"),
    (r"^cp\.async\.commit_group", "close_copies()"),
    (r"^cp\.async\.wait_group %0", "await_copies({0})"),
    (r"^cp\.async\.wait_all", "await_all_copies()"),
    (r"^cp\.async\.mbarrier\.arrive\.noinc", "arrive_with_copies({0})"),
    (r"^cp\.async\.bulk\.shared::cluster\.global", "copy_bulk({0}, {1}, {2}, {3})"),
    (r"^mbarrier\.init", "begin_barrier({0}, {1})"),
    (r"^mbarrier\.arrive\.expect_tx", "arrive({0}, {1})"),
    (r"^mbarrier\.expect_tx", "expect({0}, {1})"),
    (r"^mbarrier\.arrive\.shared", "arrive({0}, 0)"),
    (r"mbarrier\.try_wait\.parity", "await([&] {{ return {E}has_ended({0}, {1}); }})"),
    (r"mbarrier\.test_wait\.parity", "look_again(), {0} = {E}has_ended({1}, {2}) ? 1 : 0"),
    (r"^barrier\.cluster\.arrive\.release.*barrier\.cluster\.wait", "arrive_in_cluster(), {E}await_cluster()"),
    (r"^barrier\.cluster\.arrive", "arrive_in_cluster()"),
    (r"^barrier\.cluster\.wait", "await_cluster()"),
    (r"^bar\.sync (\d+), %0", "meet_by_number({g1}, {0})"),
    (r"^mapa\.shared::cluster", "!{0} = {E}in_block({1}, {2})"),
    (r"^ld\.shared::cluster\.v4\.f32",
     "!{{ const float4 of = *static_cast<const float4*>({E}shared_of_any({4})); {0} = of.x; {1} = of.y; {2} = of.z;"
     " {3} = of.w; }}"),
    (r"^st\.async\.\S*\.v2\.f32", "!{{ const float of[] = {{{1}, {2}}}; {E}send({0}, of, 2, {3}); }}"),
    (r"^st\.async\.\S*\.v4\.f32", "!{{ const float of[] = {{{1}, {2}, {3}, {4}}}; {E}send({0}, of, 4, {5}); }}"),
    (r"^red\.\S*\.global\.add\.u32 \[%0\], 1", "!*({0}) += 1"),
    (r"^ld\.(relaxed|acquire)\.gpu\.global\.u32", "!{0} = {E}look_at({1})"),
    (r"^ld\.relaxed\.gpu\.global\.v4\.u32",
     "!{{ const uint4 of = {E}look_at_four(const_cast<std::uint32_t*>({4})); {0} = of.x; {1} = of.y; {2} = of.z; {3} = of.w; }}"),
    (r"^st\.relaxed\.gpu\.global\.u32", "write_unordered({0}, {1})"),
    (r"^ld\.global\.cg\.v4\.u32",
     "!{{ const uint4 of = *reinterpret_cast<const uint4*>({4}); {0} = of.x; {1} = of.y; {2} = of.z; {3} = of.w; }}"),
    (r"^(fence|prefetch|griddepcontrol|setmaxnreg)\b", ""),
    (r"^createpolicy", "!{0} = 0"),
    (r"^rcp\.approx\.ftz\.f32", "!{0} = 1.0F / ({1})"),
    (r"^cvt\.rn\.bf16x2\.f32", "!{0} = {E}two_bf16({1}, {2})"),
    (r"cvt\.rn\.f16x2\.e4m3x2", "!{0} = {E}halves_of_e4m3({2}), {1} = {E}halves_of_e4m3({2} >> 16)"),
    (r"^cvt\.rn\.satfinite\.e4m3x2\.f32", "!{0} = {E}two_codes({E}Code::kE4m3, {1}, {2})"),
    (r"^cvt\.rn\.satfinite\.e5m2x2\.f32", "!{0} = {E}two_codes({E}Code::kE5m2, {1}, {2})"),
    (r"^mov\.u32 %0, %+smid", "!{0} = ~0U"),  # no block knows where it runs
    (r"^mov\.u64 %0, %+globaltimer", "!{0} = {E}nanoseconds()"),
    (r"^$", ""),
]


def closing(text, at):
    """Where the bracket at `at` closes; strings are skipped."""
    depth = 0
    while True:
        c = text[at]
        if c == '"':
            at = text.index('"', at + 1)
            while text[at - 1] == "\\":
                at = text.index('"', at + 1)
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1


def split(text, mark):
    """At marks that are in no bracket and no string; `::` is no mark."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] in "([{":
            at = closing(text, at)
        elif text[at] == '"':
            at = text.index('"', at + 1)
            while text[at - 1] == "\\":
                at = text.index('"', at + 1)
        elif mark == ":" and text.startswith("::", at) and (text[at - 1].isalnum() or text[at - 1] in "_>"):
            at += 1
        elif text[at] == mark:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def call_of(inside):
    sections = split(inside, ":")
    words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', sections[0])).replace("\\n", " ").strip()
    operands = []
    for section in sections[1:3]:
        for operand in split(section, ","):
            if operand.strip():
                operands.append(operand[operand.index("(") + 1:operand.rindex(")")].strip())
    for pattern, call in CALLS:
        found = re.search(pattern, words)
        if found:
            groups = {f"g{i + 1}": group for i, group in enumerate(found.groups())}
            made = call.format(*operands, E=E, all=", ".join(operands), **groups)
            return made[1:] if call.startswith("!") else E + made if made else "static_cast<void>(0)"
    sys.exit(f"translate.py: knows no instruction '{words}'")


def instructions(text):
    while found := re.search(r"\basm\b(\s+volatile)?\s*(?=\()", text):
        end = closing(text, found.end())
        text = text[:found.start()] + call_of(text[found.end() + 1:end]) + text[end + 1:]
    return text


def launches(text):
    """f<T><<<a, b, c, d>>>(e) to start(f<T>, a, b, c, d)(e)."""
    while (at := text.find("<<<")) >= 0:
        start = at
        while text[start - 1].isalnum() or text[start - 1] in "_:" or text[start - 1] == ">":
            if text[start - 1] == ">":
                depth = 0
                while True:
                    start -= 1
                    depth += (text[start] == ">") - (text[start] == "<")
                    if depth == 0:
                        break
            else:
                start -= 1
        end = text.index(">>>", at)
        text = text[:start] + f"{E}start({text[start:at]}, {text[at + 3:end]})" + text[end + 3:]
    return text


def shared(text):
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?([\w:]+(?: char)?) (\w+)\[\];",
                  rf"auto* const \2 = static_cast<\1*>({E}dynamic_shared());", text)
    return re.sub(r"__shared__ (?:alignas\(\d+\) )?([\w:<>* ]+?)\s*\b(\w+)((?:\[[^;]*\])?);",
                  rf"static const char \2_key = 0; using \2_type = \1\3;"
                  rf" auto& \2 = *static_cast<\2_type*>({E}static_shared(&\2_key, sizeof(\2_type)));", text)


def products(text):
    """The products of panel_products.cuh, whose text the preprocessor puts together."""
    return re.sub(r"#define LORA_BENCH_PRODUCT\((.*?)[^\\]\n(?=\n)",
                  "#define LORA_BENCH_PRODUCT(lanes, ...) " + E + "wgmma_shared(std::is_same_v<T, __half> ? "
                  + E + "Element::kHalf : " + E + "Element::kBf16, lanes, d, x, a, add)\n", text, flags=re.DOTALL)


def main():
    source, target = map(Path, sys.argv[1:])
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".cu", ".cuh", ".h"):
            continue
        text = path.read_text(encoding="utf-8")
        for step in (products, instructions, launches, shared):
            text = step(text)
        name = path.relative_to(source.parent)
        to = target / (name.with_suffix(".cpp") if path.suffix == ".cu" else name)
        if not to.exists() or to.read_text(encoding="utf-8") != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
