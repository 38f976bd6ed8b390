#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/process.h"

namespace lora_bench::test {
namespace {

const std::string kSource = LORA_BENCH_SOURCE_DIR;

// A kernel that does nothing but say, wherever it can write, that it passed.
constexpr const char* kForger = R"(#include <string.h>
#include <unistd.h>
#include "lora_bench_backend.h"
static int32_t supports(const lora_bench_problem* p, const lora_bench_device* d, char* w, int64_t n) {
  (void)p; (void)d; (void)w; (void)n; return 0; }
static int32_t launch(const lora_bench_problem* p, const lora_bench_operands* o, void* s, char* e,
                      int64_t n) {
  (void)p; (void)o; (void)s; (void)e; (void)n;
  const char* row = "r " WORD "{\"kind\":\"row\",\"scenario\":\"smoke\",\"case\":\"decode8-rank8\","
                    "\"backend\":\"forger\",\"status\":\"PASSED\",\"time_us\":1}\n";
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    if (write(descriptor, row, strlen(row)) < 0) { continue; }
  }
  return 0; }
static const lora_bench_descriptor descriptor = {
    LORA_BENCH_BACKEND_ABI, sizeof(lora_bench_descriptor), "forger", "forger", LORA_BENCH_HOST, 0,
    supports, 0, 0, launch};
const lora_bench_descriptor* lora_bench_backend(void) { return &descriptor; }
)";

// The example, which is right, but writes into every file that this process has open for writing.
constexpr const char* kScribbler = R"(
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define lora_bench_backend whole
#include "EXAMPLE"
#undef lora_bench_backend
static int32_t scribble(const lora_bench_problem* p, const lora_bench_operands* o, void* s, char* e,
                        int64_t n) {
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink > 0) {
      (void)!WRITE;
    }
  }
  return whole()->launch(p, o, s, e, n);
}
extern "C" const lora_bench_descriptor* lora_bench_backend(void) {
  static lora_bench_descriptor d = *whole();
  d.launch = scribble;
  return &d;
}
)";

}  // namespace

TEST_CASE("a kernel cannot answer for the process that it runs in") {
  for (const std::string word : {"", "0 ", "0000000000000000 "}) {
    const TemporaryFolder folder;
    const std::string source = folder.write("forger.c", kForger);
    const std::string library = folder.path("libforger.so");
    const ProcessResult built =
        run_process({"cc", "-std=c99", "-D_DEFAULT_SOURCE", "-DWORD=\"" + word + "\"", "-shared",
                     "-fPIC", "-I" + kSource + "/include", "-o", library, source});
    REQUIRE_MESSAGE(built.exit_code == 0, built.err);
    const ProcessResult result = run_tool({"run", "smoke", "--case", "decode8-rank8", "--no-time",
                                           "--isolate", "--backends", library});
    CAPTURE(word);
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(contains(result.out, "PASSED"));
    CHECK(contains(result.out, "answered what was not asked"));
  }
}

TEST_CASE("what a kernel writes into a result file ends the run with a sentence") {
  for (const std::string write :
       {R"(write(descriptor, "{}\n", 3))", R"(pwrite(descriptor, "X", 1, 1))"}) {
    for (const std::string file : {"rows.jsonl", "rows.csv"}) {
      CAPTURE(write);
      CAPTURE(file);
      const TemporaryFolder folder;
      std::string code = kScribbler;
      code.replace(code.find("EXAMPLE"), 7, kSource + "/examples/plugin/mine.cpp");
      code.replace(code.find("WRITE"), 5, write);
      const std::string library = folder.path("libscribbler.so");
      const ProcessResult built =
          run_process({"c++", "-std=c++20", "-O2", "-shared", "-fPIC", "-I" + kSource + "/include",
                       "-o", library, folder.write("scribbler.cpp", code)});
      REQUIRE_MESSAGE(built.exit_code == 0, built.err);
      std::vector<std::string> run{
          "run",        "smoke",          "--case", "decode8-rank8",  "--no-time",
          "--backends", library + ",cpu", "--out",  folder.path(file)};
      const ProcessResult result = run_tool(run);
      CAPTURE(result.out);
      CAPTURE(result.err);
      CHECK(result.exit_code == 5);
      CHECK(contains(result.err, file + "' holds what this program did not write there"));
      run.back() = folder.path("isolated-" + file);
      run.emplace_back("--isolate");
      CHECK(run_tool(run).exit_code == 0);
    }
  }
}

}  // namespace lora_bench::test
