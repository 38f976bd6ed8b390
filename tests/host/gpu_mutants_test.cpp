#include "verify/mutants.h"

#include <doctest/doctest.h>

#include <set>

#include "core/error.h"
#include "device/facts.h"
#include "verify/diagnose.h"
#include "verify/mutant_hunt.h"
#include "verify/random_case.h"

using namespace lora_bench;

TEST_CASE("the GPU catalogue holds at least forty faults, each its own, named once and explained") {
  std::set<std::string> keys, meanings;
  std::set<kernels::MutantFault> faults{kernels::MutantFault::kNone};
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    CAPTURE(entry.doc.fault);
    CHECK(entry.doc.fault.starts_with("gpu-"));
    CHECK(keys.insert(entry.doc.fault).second);
    CHECK(meanings.insert(entry.doc.meaning).second);
    CHECK(faults.insert(entry.fault).second);
    CHECK_FALSE(entry.doc.meaning.empty());
    CHECK_FALSE(entry.doc.source.empty());
  }
  CHECK(keys.size() >= 40);
  CHECK(gpu_mutants().size() == keys.size());
  // The last of the enumeration: none of the kernels' faults is without an entry.
  CHECK(faults.size() == static_cast<std::size_t>(kernels::MutantFault::kZeroSumUnwritten) + 1);
}

TEST_CASE("every GPU fault names a telling case that its kernels take") {
  std::set<std::string> ids;
  for (const Case& spec : telling_cases()) {
    if (spec.dtype != Dtype::kFp32) {
      ids.insert(spec.id);
    }
  }
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    CAPTURE(entry.doc.fault);
    CHECK(ids.contains(entry.seen_in));
    const bool by_values = entry.level == Level::kExact || entry.level == Level::kBounded;
    // A changed input shows without the comparison of inputs too, once the launch is repeated.
    const bool told_by_many_runs = entry.doc.hypothesis == "input-changed";
    CHECK((by_values || entry.doc.alone != Part::kNone || told_by_many_runs));
  }
}

TEST_CASE("no GPU fault has the name of a host fault, and its hypothesis exists") {
  std::set<std::string> host, known{""};
  for (const MutantDoc& doc : mutants()) {
    host.insert(doc.fault);
  }
  for (const HypothesisDoc& doc : hypotheses()) {
    known.insert(std::string(doc.key));
  }
  for (const MutantDoc& doc : gpu_mutants()) {
    CAPTURE(doc.fault);
    CHECK_FALSE(host.contains(doc.fault));
    CHECK(known.contains(doc.hypothesis));
  }
}

TEST_CASE("a GPU mutant says why it is not here, an unknown one is refused with the name meant") {
  CHECK(why_no_mutant("none").empty());
  CHECK(why_no_mutant("gpu-none") == why_no_gpu());
  CHECK(why_no_mutant("gpu-k-tail") == why_no_gpu());
  CHECK_THROWS_WITH_AS(static_cast<void>(why_no_mutant("gpu-k-tial")),
                       doctest::Contains("gpu-k-tail"), UsageError);
  if (!why_no_gpu().empty()) {
    CHECK_THROWS_AS(static_cast<void>(make_mutant("gpu-none")), EnvironmentError);
  }
}
