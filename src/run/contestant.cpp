#include "run/contestant.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "report/json_row.h"
#include "run/select.h"
#include "run/worker.h"

namespace lora_bench {

Contestant::Contestant(std::string spelling) : spelling_(std::move(spelling)) {
  check_backend(spelling_);
  name_ = backend_name(spelling_);
}

IsolatedBackend& Contestant::process() {
  if (!process_) {
    process_ = std::make_unique<IsolatedBackend>(
        std::vector<std::string>{"lora-bench", "fuzz", "--serve-cases", "--backends", spelling_});
  }
  return *process_;
}

std::string Contestant::why_not_here() {
  if (process().refused()) {
    throw UsageError(process().hello());
  }
  return process().why_not_here();
}

Proof Contestant::prove(const Case& spec, Start start) {
  if (start == Start::kFreshProcess) {
    process_.reset();
  }
  const Answer answer = process().ask(request_for_case(spec, start == Start::kFreshBackend));
  Proof proof;
  if (answer.kind == 'r' || answer.kind == 'i') {
    std::vector<std::string> unknown;
    proof.row = row_from_json(nlohmann::json::parse(answer.text), unknown);
  } else {
    proof.row.status = Status::kError;
    proof.row.message = answer.text;
    proof.crashed = answer.kind == 'x';
    proof.unusable = answer.kind == 'e';
  }
  // A process that ended is of no more use, nor is one in which something hangs.
  if (proof.crashed || proof.unusable || proof.row.status == Status::kHung) {
    process_.reset();
  }
  return proof;
}

}  // namespace lora_bench
