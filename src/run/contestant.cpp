#include "run/contestant.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "ops/plugin.h"
#include "report/json_row.h"
#include "run/select.h"
#include "run/worker.h"

namespace lora_bench {

Prover::Prover(double timeout_s, const std::string& plugin)
    : command_{"lora-bench", "fuzz", "--serve-cases", "--timeout", fmt::format("{}", timeout_s)} {
  if (!plugin.empty()) {
    command_.insert(command_.end(), {"--backends", plugin});
  }
}

IsolatedBackend& Prover::process() {
  if (!process_) {
    process_ = std::make_unique<IsolatedBackend>(command_);
  }
  return *process_;
}

Contestant::Contestant(std::string spelling, double timeout_s,
                       const std::shared_ptr<Prover>& common)
    : spelling_(std::move(spelling)), prover_(common) {
  check_backend(spelling_);
  name_ = backend_name(spelling_);
  if (names_plugin(spelling_)) {
    prover_ = std::make_shared<Prover>(timeout_s, spelling_);
  }
}

std::string Contestant::why_not_here() {
  if (!names_plugin(spelling_)) {
    return lora_bench::why_not_here(spelling_);
  }
  if (prover_->process().refused()) {
    throw UsageError(prover_->process().hello());
  }
  return prover_->process().why_not_here();
}

Proof Contestant::prove(const Case& spec, Start start) {
  if (start == Start::kFreshProcess) {
    prover_->end();
  }
  const Answer answer =
      prover_->process().ask(request_for_case(spec, spelling_, start == Start::kFreshBackend));
  Proof proof;
  if (answer.kind == 'r' || answer.kind == 'i') {
    std::vector<std::string> unknown;
    proof.row = row_from_json(nlohmann::json::parse(answer.text), unknown);
  } else {
    proof.row.status = answer.kind == 'h' ? Status::kHung : Status::kError;
    proof.row.message = answer.text;
    proof.crashed = answer.kind == 'x';
    proof.unusable = answer.kind == 'e';
  }
  // A process that ended is of no more use, nor is one in which something hangs.
  if (proof.crashed || proof.unusable || proof.row.status == Status::kHung) {
    prover_->end();
  }
  return proof;
}

}  // namespace lora_bench
