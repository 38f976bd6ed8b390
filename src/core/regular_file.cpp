#include "core/regular_file.h"

#include <string_view>
#include <system_error>

namespace lora_bench {

std::string why_no_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto is = [](std::string_view what) {
    return std::string(what) +
           ", and only files are read; write what it gives into a file and name that";
  };
  switch (std::filesystem::status(path, error).type()) {
    case std::filesystem::file_type::directory:
      return "it is a folder";
    case std::filesystem::file_type::fifo:
      return is("it is a pipe");
    case std::filesystem::file_type::socket:
      return is("it is a socket");
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character:
      return is("it is a device");
    default:
      return "";
  }
}

}  // namespace lora_bench
