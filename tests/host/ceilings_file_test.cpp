#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "measure/ceilings.h"
#include "support/process.h"

using namespace lora_bench;

namespace {

Ceilings sample() {
  Ceilings ceilings;
  ceilings.identity = "GPU-1234 \"quoted\"";
  ceilings.memory_curve = {{65536, 1e-5}, {131072, 1.7e-5}};
  ceilings.cache_curve = {{65536, 1.0 / 3e6}};
  ceilings.copy_bytes_per_s = 4.22e12;
  ceilings.launch_seconds = ceilings.update_launch_seconds = 5e-7;
  ceilings.peaks = {{Dtype::kBf16, 7.5e14}, {Dtype::kFp32, 5e13}};
  ceilings.product_flops_per_s = 2.5e11;
  ceilings.load = 1.4;
  return ceilings;
}

// Sets a variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

DeviceFacts facts() {
  DeviceFacts device;
  device.kind = "cuda";
  device.identity = sample().identity;
  return device;
}

}  // namespace

TEST_CASE("stored ceilings come back to the last bit") {
  const std::optional<Ceilings> back = ceilings_from_json(ceilings_to_json(sample()));
  REQUIRE(back);
  CHECK(back->identity == sample().identity);
  REQUIRE(back->memory_curve.size() == 2);
  CHECK(back->memory_curve[1].bytes == 131072);
  CHECK(back->memory_curve[1].seconds == 1.7e-5);
  CHECK(back->cache_curve[0].seconds == 1.0 / 3e6);
  CHECK(back->again_curve.empty());  // as on a CPU
  CHECK(back->copy_bytes_per_s == 4.22e12);
  CHECK(back->launch_seconds == 5e-7);
  CHECK(back->product_flops_per_s == 2.5e11);
  CHECK(back->load == 1.4);
  REQUIRE(back->peaks.size() == 2);
  CHECK(back->peaks[0].dtype == Dtype::kBf16);
  CHECK(back->peaks[0].flops_per_s == 7.5e14);
}

TEST_CASE("how long bytes take that come again is stored where it was measured") {
  Ceilings ceilings = sample();
  ceilings.again_curve = {{1 << 24, 3e-6}, {1 << 25, 7e-6}};
  const std::optional<Ceilings> back = ceilings_from_json(ceilings_to_json(ceilings));
  REQUIRE(back);
  REQUIRE(back->again_curve.size() == 2);
  CHECK(back->again_curve[1].bytes == 1 << 25);
  CHECK(back->again_curve[1].seconds == 7e-6);
}

TEST_CASE("a record that is cut, empty or absurd counts as none") {
  const std::string whole = ceilings_to_json(sample());
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, whole.size() / 2}) {
    CHECK_FALSE(ceilings_from_json(whole.substr(0, length)));
  }
  Ceilings absurd = sample();
  absurd.memory_curve[0].seconds = 0;
  CHECK_FALSE(ceilings_from_json(ceilings_to_json(absurd)));
  absurd = sample();
  absurd.memory_curve[1].bytes = 1;
  CHECK_FALSE(ceilings_from_json(ceilings_to_json(absurd)));
  absurd = sample();
  absurd.cache_curve.clear();
  CHECK_FALSE(ceilings_from_json(ceilings_to_json(absurd)));
}

TEST_CASE("a record that was edited counts as none, however sane it looks") {
  const std::string whole = ceilings_to_json(sample());
  REQUIRE(ceilings_from_json(whole));
  std::string edited = whole;
  const std::size_t digit = edited.find_first_of("123456789", edited.find("launch_seconds"));
  edited[digit] = edited[digit] == '9' ? '8' : '9';
  CHECK_FALSE(ceilings_from_json(edited));
  std::string unsigned_record = whole;
  unsigned_record.replace(unsigned_record.find("\"check\""), 7, "\"chalk\"");
  CHECK_FALSE(ceilings_from_json(unsigned_record));
}

TEST_CASE("each device has a cache file of its own under XDG_CACHE_HOME") {
  const Environment cache("XDG_CACHE_HOME", "/somewhere/cache");
  DeviceFacts other = facts();
  other.identity = "GPU-9999";
  CHECK(ceilings_file(facts()).parent_path() == "/somewhere/cache/lora-bench");
  CHECK(ceilings_file(facts()) == ceilings_file(facts()));
  CHECK(ceilings_file(facts()) != ceilings_file(other));
}

TEST_CASE("a stored record of the same device is used without measuring") {
  const test::TemporaryFolder folder;
  const Environment cache("XDG_CACHE_HOME", folder.folder());
  const std::filesystem::path file = ceilings_file(facts());
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << ceilings_to_json(sample());
  CHECK(obtain_ceilings(facts(), false).launch_seconds == 5e-7);
}
