#include "verify/mutants.h"

#include "core/error.h"
#include "device/facts.h"
#include "verify/metadata_proof.h"
#include "verify/mutant_faults.h"
#include "verify/quantise_proof.h"

namespace lora_bench {
namespace {

template <typename Entry>
std::vector<MutantDoc> docs_of(const std::vector<Entry>& entries) {
  std::vector<MutantDoc> docs;
  docs.reserve(entries.size());
  for (const Entry& entry : entries) {
    docs.push_back(entry.doc);
  }
  return docs;
}

// What a name stands for; null where it is no name of that kind.
struct Named {
  std::unique_ptr<Backend> (*host)(Fault, const std::string&) = nullptr;
  std::unique_ptr<Backend> (*gpu)(kernels::MutantFault, const std::string&) = nullptr;
  Fault fault = Fault::kNone;
  kernels::MutantFault gpu_fault = kernels::MutantFault::kNone;
  bool of_metadata = false, of_quantise = false;
};

Named find_fault(const std::string& fault) {
  Named named;
  std::vector<std::string> known{"none", "gpu-none"};
  named.host = fault == "none" ? make_mutant_kernel : nullptr;
  named.gpu = fault == "gpu-none" ? make_gpu_mutant : nullptr;
  for (const FaultEntry& entry : fault_catalogue()) {
    known.push_back(entry.doc.fault);
    if (entry.doc.fault == fault) {
      named.host = make_mutant_kernel;
      named.fault = entry.fault;
    }
  }
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    known.push_back(entry.doc.fault);
    if (entry.doc.fault == fault) {
      named.gpu = make_gpu_mutant;
      named.gpu_fault = entry.fault;
    }
  }
  for (const MetadataFaultDoc& doc : metadata_faults()) {
    known.emplace_back(doc.fault);
    named.of_metadata = named.of_metadata || doc.fault == fault;
  }
  for (const QuantiseFault& known_fault : quantise_faults()) {
    known.emplace_back(known_fault.fault);
    named.of_quantise = named.of_quantise || known_fault.fault == fault;
  }
  if (named.host == nullptr && named.gpu == nullptr && !named.of_metadata && !named.of_quantise) {
    Diagnostic unknown;
    unknown.what = "unknown mutant '" + fault + "'";
    unknown.allowed = "none, gpu-none, or a fault that `lora-bench list mutants` shows";
    unknown.suggestion = nearest(fault, known);
    throw UsageError(std::vector<Diagnostic>{unknown});
  }
  return named;
}

}  // namespace

const std::vector<MutantDoc>& mutants() {
  static const std::vector<MutantDoc> kDocs = docs_of(fault_catalogue());
  return kDocs;
}

const std::vector<MutantDoc>& gpu_mutants() {
  static const std::vector<MutantDoc> kDocs = docs_of(gpu_fault_catalogue());
  return kDocs;
}

std::string why_no_mutant(const std::string& fault) {
  return find_fault(fault).gpu == nullptr ? "" : why_no_gpu();
}

std::unique_ptr<Backend> make_mutant(const std::string& fault) {
  const Named named = find_fault(fault);
  if (named.of_metadata) {
    return make_metadata_mutant(fault);
  }
  if (named.of_quantise) {
    return make_quantise_mutant(fault);
  }
  const std::string name = "mutant:" + fault;
  return named.gpu == nullptr ? named.host(named.fault, name) : named.gpu(named.gpu_fault, name);
}

}  // namespace lora_bench
