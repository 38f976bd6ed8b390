#include "run/executable.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <bit>
#include <cstring>

namespace lora_bench {
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
