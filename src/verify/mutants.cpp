#include "verify/mutants.h"

#include "core/error.h"
#include "verify/mutant_faults.h"

namespace lora_bench {
namespace {

std::vector<MutantDoc> docs_of(const std::vector<FaultEntry>& entries) {
  std::vector<MutantDoc> docs;
  docs.reserve(entries.size());
  for (const FaultEntry& entry : entries) {
    docs.push_back(entry.doc);
  }
  return docs;
}

}  // namespace

const std::vector<MutantDoc>& mutants() {
  static const std::vector<MutantDoc> kDocs = docs_of(fault_catalogue());
  return kDocs;
}

std::unique_ptr<Backend> make_mutant(const std::string& fault) {
  if (fault == "none") {
    return make_mutant_kernel(Fault::kNone, "mutant:none");
  }
  std::vector<std::string> known{"none"};
  for (const FaultEntry& entry : fault_catalogue()) {
    if (entry.doc.fault == fault) {
      return make_mutant_kernel(entry.fault, "mutant:" + fault);
    }
    known.push_back(entry.doc.fault);
  }
  Diagnostic unknown;
  unknown.what = "unknown mutant '" + fault + "'";
  unknown.allowed = "none, or a fault that `lora-bench list` shows";
  unknown.suggestion = nearest(fault, known);
  throw UsageError(std::vector<Diagnostic>{unknown});
}

}  // namespace lora_bench
