#include "run/context.h"

#include <elf.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <unistd.h>
#include <array>
#include <bit>
#include <cstring>
#include <ctime>

#include "core/version.h"

namespace lora_bench {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "";
}

std::string now_utc() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// What was built from a changed or an unknown tree is named by no commit alone.
std::string commit_of_build(const BuildFacts& build) {
  std::string commit{build.commit};
  const std::string id = executable_id();
  return id.empty() || !(build.dirty || commit == "unknown") ? commit
                                                             : commit + "+" + id.substr(0, 12);
}

std::string differs(std::string_view what, const std::string& stored, const std::string& current) {
  return stored == current ? "" : fmt::format("{} was '{}', is '{}'", what, stored, current);
}

}  // namespace

Context make_context(const DeviceFacts& device, const std::vector<Scenario>& scenarios,
                     const std::vector<std::string>& argv) {
  const BuildFacts& build = build_facts();
  Context context;
  context.tool_version = build.version;
  context.commit = commit_of_build(build);
  context.dirty = build.dirty;
  context.build = build.build_type;
  context.compiler = build.compiler;
  context.cuda_compiler = build.cuda_compiler;
  context.device_kind = device.kind;
  context.device_name = device.name;
  context.device_identity = device.identity;
  context.driver = device.driver;
  context.runtime = device.runtime;
  context.compute_capability = device.compute_capability;
  context.multiprocessors = device.multiprocessors;
  context.cache_bytes = device.cache_bytes;
  context.memory_bytes = device.memory_bytes;
  context.clock_mhz_max = static_cast<std::int64_t>(device.clock_mhz_max);
  context.host = host_name();
  context.cpu = device.kind == "cpu" ? device.name : cpu_facts().name;
  context.started_utc = now_utc();
  context.argv = argv;
  for (const Scenario& scenario : scenarios) {
    context.scenario_hash[scenario.name] = fmt::format("{:016x}", scenario.content_hash);
    if (!scenario.cases.empty() && context.seed == 0) {
      context.seed = static_cast<std::int64_t>(scenario.cases.front().seed);
    }
  }
  return context;
}

std::string why_not_resumable(const Context& stored, const Context& current) {
  for (const auto& [name, hash] : current.scenario_hash) {
    const auto found = stored.scenario_hash.find(name);
    if (found == stored.scenario_hash.end()) {
      return fmt::format("it holds no rows of scenario '{}'", name);
    }
    if (found->second != hash) {
      return fmt::format(
          "scenario '{}' is another one than it was: the file, or an option such as --set; it came "
          "from `{}`",
          name, fmt::join(stored.argv, " "));
    }
  }
  for (const std::string& reason :
       {differs("device", stored.device_identity, current.device_identity),
        differs("tool version", stored.tool_version, current.tool_version),
        differs("commit", stored.commit, current.commit),
        differs("build", stored.build, current.build),
        differs("driver", stored.driver, current.driver),
        differs("what is asked of rows", asked_of_rows(stored.argv),
                asked_of_rows(current.argv))}) {
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

namespace {

constexpr std::size_t kWord = 4;  // notes are laid out in these

std::size_t padded(std::size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

std::string id_in(const unsigned char* notes, std::size_t bytes) {
  ElfW(Nhdr) note{};
  for (std::size_t at = 0; at + sizeof note <= bytes;) {
    std::memcpy(&note, notes + at, sizeof note);
    const std::size_t value = at + sizeof note + padded(note.n_namesz);
    if (value + note.n_descsz > bytes) {
      break;
    }
    if (note.n_type == NT_GNU_BUILD_ID) {
      std::string text;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        text += fmt::format("{:02x}", notes[value + i]);
      }
      return text;
    }
    at = value + padded(note.n_descsz);
  }
  return "";
}

// The first object is the program itself.
int look(dl_phdr_info* object, std::size_t /*bytes*/, void* found) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE) {
      const std::uintptr_t address = object->dlpi_addr + segment.p_vaddr;
      std::string id = id_in(std::bit_cast<const unsigned char*>(address), segment.p_memsz);
      if (!id.empty()) {
        *static_cast<std::string*>(found) = std::move(id);
        break;
      }
    }
  }
  return 1;
}

}  // namespace

std::string executable_id() {
  std::string id;
  dl_iterate_phdr(look, &id);
  return id;
}

}  // namespace lora_bench
