#pragma once

#include <filesystem>
#include <string>

namespace lora_bench {

// Why `path` cannot be read as a file, with what to do: it is a folder, a pipe, a device or a
// socket, of which opening or reading may never end. "" where it is a file, or opening it will tell
// what is wrong. Ask before the file is opened.
[[nodiscard]] std::string why_no_file(const std::filesystem::path& path);

}  // namespace lora_bench
