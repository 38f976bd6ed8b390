#include "run/samples.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"

namespace lora_bench {
namespace {

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

class SamplesSink final : public Sink {
 public:
  explicit SamplesSink(const std::filesystem::path& path) : path_(path), file_(path) {
    check("opened");
  }
  void begin(const Context& /*context*/) override {
    file_ << "scenario,case,backend,repetition,sample,time_us\n";
    check("written");
  }
  void row(const Row& row) override {
    for (std::size_t i = 0; i < row.samples_us.size(); ++i) {
      file_ << fmt::format("{},{},{},{},{},{}\n", csv_quoted(row.scenario), csv_quoted(row.case_id),
                           csv_quoted(row.backend), row.repetition, i, row.samples_us[i]);
    }
    file_.flush();
    check("written");
  }
  void finish() override {}

 private:
  void check(const char* what) {
    if (!file_) {
      throw EnvironmentError(
          fmt::format("{} cannot be {}: {}", path_.string(), what, std::strerror(errno)));
    }
  }
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace

std::unique_ptr<Sink> make_samples_sink(const std::filesystem::path& path) {
  return std::make_unique<SamplesSink>(path);
}

}  // namespace lora_bench
