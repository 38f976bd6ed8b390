#include "run/export.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "run/safetensors.h"
#include "support/need_numpy.h"
#include "support/process.h"
#include "support/safetensors_header.h"
#include "support/workload_case.h"
#include "verify/mutants.h"

using namespace lora_bench;

namespace {

const std::string kCheck = std::string(LORA_BENCH_SOURCE_DIR) + "/scripts/check_export.py";

ExportedFiles export_with(const Case& spec, const std::string& fault, const std::string& folder) {
  const auto memory = make_host_memory();
  const auto backend = make_mutant(fault);
  const DeviceFacts facts = cpu_facts();
  return export_case(
      {.spec = spec, .backend = *backend, .memory = *memory, .facts = facts, .folder = folder});
}

Case exported_case(Op op) {
  Case spec = workload_case(6, 3);
  spec.op = op;
  spec.id = "tiny/case=1";
  spec.layer.offset_start = 3;
  spec.layer.y_stride = 40;
  spec.adapters.rank.list = {8, 0, 5};
  spec.adapters.bias = true;
  spec.no_adapter = 0.2;
  spec.skew.kind = Skew::kDistinct;
  spec.prefill_skew = spec.skew;
  return spec;
}

}  // namespace

TEST_CASE("an export into what is no folder is an error of the environment") {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  CHECK_THROWS_AS(static_cast<void>(export_with(exported_case(Op::kLinear), "none", file)),
                  EnvironmentError);
}

TEST_CASE("an export names its files after the case and tells everything about it") {
  const test::TemporaryFolder folder;
  const ExportedFiles files = export_with(exported_case(Op::kLinear), "none", folder.path("new"));
  CHECK(files.tensors == folder.path("new/tiny_case_1.safetensors"));
  const auto metadata = nlohmann::json::parse(test::read_file(files.metadata.string()));
  CHECK(metadata["case"] == "tiny/case=1");
  CHECK(metadata["widths"] == nlohmann::json({24, 8}));
  const nlohmann::json header = test::header_of(test::read_file(files.tensors.string()));
  CHECK(header["__metadata__"]["widths"] == "[24,8]");
  CHECK(header["x"]["dtype"] == "BF16");
  CHECK(header["expected"]["shape"] == nlohmann::json({6, 40}));
  for (const char* name : {"a.0", "a.1", "b.0", "b.1", "bias.0", "bias.1", "y_before", "output",
                           "rows", "bound", "owned", "rank", "scale", "adapter_of_token",
                           "token_order", "active_ids", "group_starts"}) {
    CAPTURE(name);
    CHECK(header.contains(name));
  }
}

TEST_CASE("an export of a case that is handed a published form has its arrays") {
  const test::TemporaryFolder folder;
  Case spec = exported_case(Op::kLinear);
  const auto names_of = [&] {
    return test::header_of(
        test::read_file(export_with(spec, "none", folder.path("new")).tensors.string()));
  };
  CHECK_FALSE(names_of().contains("kernel.starts"));
  spec.plan.form = PlanForm::kKernel;
  CHECK(names_of().contains("kernel.starts"));
  CHECK(names_of().contains("token_order"));
  spec.plan.form = PlanForm::kChunked;
  CHECK(names_of().contains("chunked.segment_starts"));
}

TEST_CASE("an exported layer has zeros for what adapters lack, and one A for a packed pair") {
  const test::TemporaryFolder folder;
  Case spec = exported_case(Op::kLayer);
  spec.adapters.rank.list = {8};
  spec.layer.offset_start = 0;
  spec.layer.widths = {24, 8};
  spec.layer.x_stride = spec.layer.in_features;
  spec.layer.y_stride = 32;
  spec.setup.kind = LayerKind::kMergedColumn;
  spec.setup.missing = {{}, {1}};
  const auto exported = [&] {
    return read_safetensors(export_with(spec, "none", folder.path("layer")).tensors).tensors;
  };
  const auto are_zeros = [](const std::vector<std::byte>& data, std::size_t slot) {
    const auto bytes = static_cast<std::ptrdiff_t>(data.size() / 3);
    const auto first = data.begin() + static_cast<std::ptrdiff_t>(slot) * bytes;
    return std::all_of(first, first + bytes, [](std::byte byte) { return byte == std::byte{0}; });
  };
  REQUIRE(spec.adapters.slots == 3);
  const auto missing = exported();
  for (const char* of_second : {"b.1", "bias.1"}) {
    CHECK(are_zeros(missing.at(of_second).data, 1));
    CHECK_FALSE(are_zeros(missing.at(of_second).data, 0));
  }
  CHECK_FALSE(are_zeros(missing.at("b.0").data, 1));
  CHECK(missing.at("a.0").data != missing.at("a.1").data);
  spec.setup.missing.clear();
  spec.setup.packed = {2};
  const auto packed = exported();
  CHECK(packed.at("a.0").data == packed.at("a.1").data);
  CHECK(packed.at("b.0").data != packed.at("b.1").data);
}

TEST_CASE("NumPy alone agrees with the oracle on every op, and tells a wrong output") {
  LORA_BENCH_NEED_NUMPY(python);
  const test::TemporaryFolder folder;
  for (const Op op : {Op::kLinear, Op::kShrink, Op::kExpand, Op::kEmbedding, Op::kLogits}) {
    for (const ScaleAt scale_at : {ScaleAt::kShrink, ScaleAt::kExpand}) {
      CAPTURE(name(op));
      CAPTURE(name(scale_at));
      Case spec = exported_case(op);
      spec.scale_at = scale_at;
      spec.add_inputs = scale_at == ScaleAt::kShrink;
      const ExportedFiles files = export_with(spec, "none", folder.folder());
      const test::ProcessResult result =
          test::run_process({python, kCheck, files.tensors.string()});
      CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
    }
  }
  Case scaled = exported_case(Op::kLinear);
  scaled.weights.dtype = Dtype::kE4m3;
  scaled.weights.scale = WeightsScale::kTensor;
  const test::ProcessResult refused = test::run_process(
      {python, kCheck, export_with(scaled, "none", folder.folder()).tensors.string()});
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(refused.err.find("a case of weights.dtype: e4m3") != std::string::npos,
                refused.err);
  const ExportedFiles wrong =
      export_with(exported_case(Op::kLinear), "rank-lane-lost", folder.folder());
  CHECK(test::run_process({python, kCheck, wrong.tensors.string()}).exit_code == 2);
}

TEST_CASE("docs/export.md shows the recomputation as the script has it") {
  const std::string docs = test::read_file(std::string(LORA_BENCH_SOURCE_DIR) + "/docs/export.md");
  const std::size_t begin = docs.find("```python\n") + 10;
  const std::string shown = docs.substr(begin, docs.find("```", begin) - begin);
  CHECK(shown.size() > 100);
  CHECK(test::read_file(kCheck).find(shown) != std::string::npos);
}
