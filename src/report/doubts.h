#pragma once

#include <map>
#include <string>
#include <utility>

#include "report/row.h"

namespace lora_bench {

// What a row says that this tool would not have written, one sentence; "" = nothing. Figures that
// contradict each other were edited, or a clock lied: no verdict should rest on them.
[[nodiscard]] std::string doubt_about(const Row& row);

// The same of a row that was stored: no run stores a pass without a proof, without a floor beside
// its time or below it, of too few samples, work that adds up to nothing, or rates of another time.
// scripts/plotting/doubts.py says the same in Python; tests/golden/doubts.json holds both to it.
[[nodiscard]] std::string doubt_about_stored(const Row& row);

// What kept the machine from giving a row's backend all that it has while it was timed, one
// sentence; "" = nothing that is known. The result is right, but its time is not the code's alone.
[[nodiscard]] std::string disturbance(const Row& row);
// Of the CPU time wanted: what others take below that does not show in a median.
constexpr double kMostStolenShare = 0.05;

// Whether two rows agree in cache and mode; one that was not timed may say neither.
[[nodiscard]] bool timed_alike(const Row& left, const Row& right);
// Whether two rows of the same names measured another case: "" or in what they differ.
[[nodiscard]] std::string other_case(const Row& left, const Row& right);
// The same of rows of one tool, which count one case alike: what they had to move and multiply too.
[[nodiscard]] std::string other_work(const Row& left, const Row& right);

// The cases of one file, or of files of one tool, each as its first row tells it.
class CasesByName {
 public:
  // Whether a row at `place` tells another case than the first of its names: "" or in what and
  // where that was.
  [[nodiscard]] std::string other(const Row& row, const std::string& place);

 private:
  struct Known {
    Row row;
    std::string place;
  };
  std::map<std::pair<std::string, std::string>, Known> first_;
};

}  // namespace lora_bench
