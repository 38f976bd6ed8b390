#include <doctest/doctest.h>

#include <set>

#include "verify/diagnose.h"
#include "verify/mutant_hunt.h"
#include "verify/random_case.h"

using namespace lora_bench;

TEST_CASE("every mutant is caught, and its fault is named where a name fits") {
  std::set<std::string> named;
  for (const MutantDoc& doc : mutants()) {
    const SelfTestRow row = hunt(doc.fault, telling_cases());
    CAPTURE(doc.fault);
    CAPTURE(row.level);
    CAPTURE(row.case_id);
    CHECK(row.caught);
    CHECK(row.hypothesis == doc.hypothesis);
    named.insert(row.hypothesis);
  }
  for (const HypothesisDoc& doc : hypotheses()) {
    CAPTURE(doc.key);
    CHECK_MESSAGE(named.contains(std::string(doc.key)), "no mutant stands for this hypothesis");
  }
}

TEST_CASE("the right kernel raises no alarm, neither in the telling cases nor in random ones") {
  CHECK_FALSE(hunt("none", telling_cases()).caught);
  SelfTestReport report;
  try_correct(*make_mutant("none"), 50, 7, report);
  CHECK(report.correct_cases == 50);
  CHECK(report.false_alarms == 0);
  for (const std::string& message : report.alarm_messages) {
    MESSAGE(message);
  }
}
