#include "run/samples.h"

#include <fmt/format.h>

#include "report/output_file.h"

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
  explicit SamplesSink(const std::filesystem::path& path) : file_(path, false) {}
  void begin(const Context& /*context*/) override {
    file_.write("scenario,case,backend,repetition,sample,time_us\n");
  }
  void row(const Row& row) override {
    std::string lines;
    for (std::size_t i = 0; i < row.samples_us.size(); ++i) {
      lines += fmt::format("{},{},{},{},{},{}\n", csv_quoted(row.scenario), csv_quoted(row.case_id),
                           csv_quoted(row.backend), row.repetition, i, row.samples_us[i]);
    }
    file_.write(lines);
  }
  void finish() override { file_.close(); }

 private:
  OutputFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_samples_sink(const std::filesystem::path& path) {
  return std::make_unique<SamplesSink>(path);
}

}  // namespace lora_bench
