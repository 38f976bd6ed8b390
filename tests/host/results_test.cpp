#include <doctest/doctest.h>

#include <clocale>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "report/sink.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

std::string context_line() { return to_json_line(fixed_context()) + "\n"; }
std::string row_line() { return to_json_line(fixed_rows().front()) + "\n"; }

// What parse_results says about `text`, "" if it takes it.
std::string refusal(const std::string& text) {
  try {
    const Results results = parse_results(text, "r.jsonl");
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

void check_same(const Row& row, const Row& back) {
  for (const Column& column : columns()) {
    INFO(column.key);
    CHECK(column.get(row) == column.get(back));
  }
}

}  // namespace

TEST_CASE("a row survives JSON lines bit for bit") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Row row = random_row(seed);
    const Results back = parse_results(context_line() + to_json_line(row) + "\n", "r.jsonl");
    REQUIRE(back.rows.size() == 1);
    check_same(row, back.rows.front());
  }
}

TEST_CASE("a context survives JSON lines") {
  const Context context = parse_results(context_line(), "r.jsonl").context;
  CHECK(to_json_line(context) + "\n" == context_line());
  CHECK(context.argv == fixed_context().argv);
  CHECK(context.scenario_hash == fixed_context().scenario_hash);
}

TEST_CASE("rows know the machine and the build of the context above them") {
  const auto origin_under = [](const Context& context) {
    const Results results = parse_results(
        context_line() + row_line() + to_json_line(context) + "\n" + row_line(), "r.jsonl");
    REQUIRE(results.rows.size() == 2);
    CHECK(results.rows.front().origin == origin_of(fixed_context()));
    return results.rows.back().origin;
  };
  Context context = fixed_context();
  context.started_utc = "2030-01-01T00:00:00Z";
  context.argv = {"lora-bench", "another"};
  context.scenario_hash = {{"another", "1"}};
  CHECK(origin_under(context) == origin_of(fixed_context()));
  for (std::string Context::*field : {&Context::device_identity, &Context::driver,
                                      &Context::tool_version, &Context::commit, &Context::build}) {
    Context other = fixed_context();
    other.*field += "x";
    CHECK(origin_under(other) != origin_of(fixed_context()));
  }
}

TEST_CASE("every promised key is in every row, whatever the row lacks") {
  const nlohmann::json json = nlohmann::json::parse(to_json_line(Row{}));
  for (const char* key : {"kind", "scenario", "case", "backend", "op", "dtype", "tokens", "active",
                          "rank", "status", "time_us", "floor_us", "floor_ratio", "cache", "mode",
                          "tokens_per_s", "bytes", "flops", "repro"}) {
    CHECK_MESSAGE(json.contains(key), key);
  }
}

TEST_CASE("not-a-number and infinity are null, and bytes that are not UTF-8 are replaced") {
  Row row = fixed_rows().front();
  row.time.us = std::nan("");
  row.floor.us = HUGE_VAL;
  row.message = "bad \xFF byte";
  const nlohmann::json json = nlohmann::json::parse(to_json_line(row));
  CHECK(json["time_us"].is_null());
  CHECK(json["floor_us"].is_null());
  CHECK(json["message"] == "bad \xEF\xBF\xBD byte");
}

TEST_CASE("a last line cut in the middle is dropped with a warning, at every place of the cut") {
  const std::string row = row_line();
  for (std::size_t kept = 1; kept < row.size() - 1; kept += 7) {
    const Results results = parse_results(context_line() + row + row.substr(0, kept), "r.jsonl");
    CHECK(results.rows.size() == 1);
    REQUIRE(results.warnings.size() == 1);
    CHECK(results.warnings.front() == "r.jsonl:3: last line is cut in the middle; dropped");
  }
  CHECK(parse_results(context_line() + row.substr(0, row.size() - 1), "r.jsonl").rows.size() == 1);
}

TEST_CASE("a broken line elsewhere is refused with its place") {
  const std::string cut = row_line().substr(0, 40);
  const std::string broken =
      "r.jsonl:2: not valid JSON, so cut or edited; delete the line to read the others";
  CHECK(refusal(context_line() + cut + "\n" + row_line()) == broken);
  CHECK(refusal(context_line() + cut + "\n") == broken);
  CHECK(refusal("") == "r.jsonl:1: no context line; not a results file of lora-bench");
  CHECK(refusal(row_line()).find("r.jsonl:1: the first line must be the context") == 0);
  CHECK(refusal(context_line() + "[1]\n") == "r.jsonl:2: not an object with the key 'kind'");
  CHECK(refusal(context_line() + "{\"kind\":\"row\"}\n") ==
        "r.jsonl:2: row without the key 'scenario'");
  CHECK(refusal(context_line() + std::string(100, '[') + "\n").find("r.jsonl:2: nested") == 0);
  CHECK(refusal(context_line() + std::string((std::size_t{16} << 20) + 1, ' ') + "x\n")
            .find("r.jsonl:2: line longer than") == 0);
}

TEST_CASE("a key that stands twice in a line is refused, wherever it is") {
  const std::string row = row_line();
  const std::string said = "r.jsonl:2: has the key '";
  CHECK(refusal(context_line() + "{\"status\":\"FAILED\"," + row.substr(1))
            .find(said + "status' twice, so edited") == 0);
  CHECK(refusal(context_line() + "{\"st\\u0061tus\":\"FAILED\"," + row.substr(1))
            .find(said + "status' twice") == 0);
  const std::string in_point =
      R"({"kind":"row","scenario":"s","case":"c","backend":"b","status":"SKIPPED",)"
      R"("point":{"rank":"8","rank":"16"}})";
  CHECK(refusal(context_line() + in_point + "\n").find(said + "rank' twice") == 0);
  CHECK(refusal("{\"device_name\":\"another\"," + context_line().substr(1))
            .find("r.jsonl:1: has the key 'device_name' twice") == 0);
  // A key of a row may be one of its point too.
  const std::string both = R"({"kind":"row","scenario":"s","case":"c","backend":"b",)"
                           R"("status":"SKIPPED","point":{"rank":"8"},"rank":8})";
  CHECK(refusal(context_line() + both + "\n").empty());
}

TEST_CASE("a key of the wrong type is refused by name") {
  const auto with = [](const char* key, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(row_line());
    json[key] = value;
    return refusal(context_line() + json.dump() + "\n");
  };
  CHECK(with("time_us", "12") == "r.jsonl:2: key 'time_us' must be a number, not string");
  CHECK(with("tokens", 1.5) == "r.jsonl:2: key 'tokens' must be an integer, not number");
  CHECK(with("tokens", UINT64_MAX).find("r.jsonl:2: key 'tokens' is larger than") == 0);
  CHECK(with("case", 3) == "r.jsonl:2: key 'case' must be a string, not number");
  CHECK(with("tags", "a") == "r.jsonl:2: key 'tags' must be an array of strings, not string");
  CHECK(with("point", {{"rank", 8}}) == "r.jsonl:2: key 'point' must be a string, not number");
  CHECK(with("status", "FINE") == "r.jsonl:2: unknown status 'FINE'");
}

TEST_CASE("a newer schema is refused, an unknown key is one warning") {
  nlohmann::json context = nlohmann::json::parse(context_line());
  context["schema"] = 3;
  CHECK(refusal(context.dump() + "\n").find("r.jsonl:1: schema 3 is newer") == 0);

  nlohmann::json row = nlohmann::json::parse(row_line());
  row["colour"] = "red";
  nlohmann::json again = row;
  again["repetition"] = 1;
  const Results results =
      parse_results(context_line() + row.dump() + "\n" + again.dump() + "\n", "r.jsonl");
  REQUIRE(results.warnings.size() == 1);
  CHECK(results.warnings.front() == "r.jsonl: key 'colour' is unknown to this version; ignored");
}

TEST_CASE("files of different machines merge with a warning") {
  Results left = parse_results(context_line() + row_line(), "a.jsonl");
  Results right = parse_results(context_line() + row_line(), "b.jsonl");
  CHECK(merge_results({left, right}).warnings.empty());
  right.context.driver = "7.0";
  const Results both = merge_results({left, right});
  CHECK(both.rows.size() == 2);
  REQUIRE(both.warnings.size() == 1);
  right.context.commit = "fedcba9";
  CHECK(merge_results({left, right}).warnings.size() == 2);
  CHECK(both.warnings.front() == "a.jsonl and b.jsonl: driver differs: '6.1.0' and '7.0'");
}

TEST_CASE("a locale with comma decimals changes no file") {
  const std::string before = to_json_line(fixed_rows().front());
  const std::string old = std::setlocale(LC_ALL, nullptr);
  const char* comma = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"}) {
    comma = comma != nullptr ? comma : std::setlocale(LC_ALL, name);
  }
  if (comma == nullptr) {
    MESSAGE("skipped: no locale with comma decimals is installed");
    return;
  }
  const std::string during = to_json_line(fixed_rows().front());
  const Results back = parse_results(context_line() + during + "\n", "r.jsonl");
  const std::string cell = file_text(Cell{70.125});
  std::setlocale(LC_ALL, old.c_str());
  CHECK(during == before);
  CHECK(cell == "70.125");
  check_same(fixed_rows().front(), back.rows.front());
}

TEST_CASE("a stored row that contradicts itself is read with its place, the cause and what to do") {
  std::ifstream golden(std::string(LORA_BENCH_SOURCE_DIR) + "/tests/golden/doubts.json");
  const nlohmann::json row = nlohmann::json::parse(row_line());
  for (const nlohmann::json& each : nlohmann::json::parse(golden)) {
    nlohmann::json edited = row;
    edited.update(each["edit"]);
    INFO(each["edit"].dump());
    const std::vector<std::string> warnings =
        parse_results(context_line() + edited.dump() + "\n", "r.jsonl").warnings;
    const auto doubt = each["doubt"].get<std::string>();
    if (doubt.empty()) {
      CHECK(warnings.empty());
    } else {
      REQUIRE(warnings.size() == 1);
      CHECK(warnings.front() ==
            "r.jsonl:2: " + doubt + "; no run writes that: measure the row again");
    }
  }
}

TEST_CASE("a sealed row that was changed is in doubt, whatever was changed and made to agree") {
  const std::string context = saying_sealed(to_json_line(fixed_context())) + "\n";
  const auto warnings = [&](const std::string& row) {
    const Results results = parse_results(context + row + "\n", "r.jsonl");
    CHECK(results.rows.front().doubted == !results.warnings.empty());
    return results.warnings;
  };
  const std::string sealed = with_seal(to_json_line(fixed_rows().front()));
  CHECK(warnings(sealed).empty());
  CHECK(warnings(sealed + "\r").empty());
  const std::string said = "r.jsonl:2: the row was changed after it was written, as its seal ";
  const auto edited = [&](const auto& edit) {
    Row row = fixed_rows().front();
    edit(row);
    derive_metrics(row);
    const std::string line = to_json_line(row);  // with the seal of what was there before
    const std::vector<std::string> found =
        warnings(line.substr(0, line.size() - 1) + sealed.substr(sealed.rfind(",\"seal\"")));
    return found.size() == 1 && found.front() == said + "is that of another line: measure it again";
  };
  CHECK(edited([](Row& row) { *row.floor.us /= 2; }));
  CHECK(edited([](Row& row) { row.warning += "no"; }));
  CHECK(edited([](Row& row) { *row.time.noise_us /= 2; }));
  const std::vector<std::string> bare = warnings(to_json_line(fixed_rows().front()));
  REQUIRE(bare.size() == 1);
  CHECK(bare.front() == said + "is missing: measure it again");
  // Files of tools that seal nothing.
  CHECK(parse_results(context_line() + row_line(), "r.jsonl").warnings.empty());
}

TEST_CASE("a row whose samples were taken out, or whose noise was, is in doubt without any seal") {
  const auto warning = [](const auto& edit) {
    Row row = fixed_rows().front();
    edit(row);
    const auto found = parse_results(context_line() + to_json_line(row) + "\n", "r.jsonl").warnings;
    return found.empty() ? "" : found.front();
  };
  CHECK(warning([](Row&) {}).empty());
  CHECK(warning([](Row& row) { row.time.samples_us.clear(); }) ==
        "r.jsonl:2: PASSED with a time and without the samples_us that it is the median of; no run "
        "writes that: measure the row again");
  CHECK(warning([](Row& row) { row.time.noise_us = 0; }) ==
        "r.jsonl:2: noise_us is 0, though the quartiles are apart; no run writes that: measure the "
        "row again");
}

TEST_CASE("rows told twice and another case under known names are read with a warning") {
  const Row row = fixed_rows().front();
  const auto warnings = [](const std::vector<Row>& rows) {
    std::string text = context_line();
    for (const Row& each : rows) {
      text += to_json_line(each) + "\n";
    }
    return parse_results(text, "r.jsonl").warnings;
  };
  Row again = row;
  again.id.repetition = 1;
  CHECK(warnings({row, again}).empty());
  CHECK(warnings({row, row}) ==
        std::vector<std::string>{
            "r.jsonl:3: the same row once more; its samples count twice: take one out"});
  again.step.content = "another";
  CHECK(warnings({row, again}).empty());  // the first is of a version that told none
  again.step.tokens = 9;
  derive_metrics(again);
  CHECK(warnings({row, again}) ==
        std::vector<std::string>{"r.jsonl:3: another case of the same name: tokens '8' and '9' "
                                 "(the first: line 2); keep them in files of their own"});
  again = row;
  again.step.weight_bytes = 1;
  CHECK(warnings({row, again}).front().find("other bytes, weight_bytes or flops") !=
        std::string::npos);
}

TEST_CASE("files that know another case by one name merge with a warning") {
  const Results left = parse_results(context_line() + row_line(), "a.jsonl");
  Results right = left;
  right.file = "b.jsonl";
  right.rows.front().step.tokens = 9;
  const Results both = merge_results({left, right});
  REQUIRE(both.warnings.size() == 1);
  CHECK(both.warnings.front() ==
        "b.jsonl: qkv/decode=8 on cpu: another case of the same name: tokens '8' and '9' (the "
        "first: a.jsonl); report them one by one");
}
