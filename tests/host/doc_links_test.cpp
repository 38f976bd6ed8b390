#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Lines outside of fenced blocks.
std::vector<std::string> prose_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  bool fenced = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("```", 0) == 0) {
      fenced = !fenced;
    } else if (!fenced) {
      lines.push_back(line);
    }
  }
  return lines;
}

// The anchor that a heading gets on the usual hosts.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ' || c == '-') {
      anchor += '-';
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') {
      anchor += c;
    } else if (c >= 'A' && c <= 'Z') {
      anchor += static_cast<char>(c - 'A' + 'a');
    }
  }
  return anchor;
}

std::set<std::string> anchors_in(const fs::path& file) {
  std::set<std::string> anchors;
  for (const std::string& line : prose_of(file)) {
    const std::size_t hashes = line.find_first_not_of('#');
    if (hashes != 0 && hashes != std::string::npos && line[hashes] == ' ') {
      anchors.insert(anchor_of(line.substr(hashes + 1)));
    }
  }
  return anchors;
}

// Relative targets of [text](target).
std::vector<std::string> links_in(const fs::path& file) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> links;
  for (const std::string& line : prose_of(file)) {
    for (std::sregex_iterator at(line.begin(), line.end(), kLink), end; at != end; ++at) {
      if ((*at)[1].str().find("://") == std::string::npos) {
        links.push_back((*at)[1]);
      }
    }
  }
  return links;
}

std::string why_broken(const fs::path& file, const std::string& link) {
  const std::size_t hash = link.find('#');
  const fs::path target = hash == 0 ? file : file.parent_path() / link.substr(0, hash);
  if (!fs::exists(target)) {
    return "no such file";
  }
  const bool found =
      hash == std::string::npos || anchors_in(target).count(link.substr(hash + 1)) > 0;
  return found ? "" : "no such heading";
}

std::vector<fs::path> documents() {
  const fs::path root = LORA_BENCH_SOURCE_DIR;
  std::vector<fs::path> files;
  for (const char* folder : {"docs", "scenarios", "kernels"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") {
        files.push_back(entry.path());
      }
    }
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".md") {
      files.push_back(entry.path());
    }
  }
  return files;
}

}  // namespace

TEST_CASE("every link of the documents leads to a file and a heading that exist") {
  std::size_t links = 0;
  for (const fs::path& file : documents()) {
    for (const std::string& link : links_in(file)) {
      CAPTURE(file.string());
      CAPTURE(link);
      CHECK(why_broken(file, link) == "");
      ++links;
    }
  }
  CHECK(links >= 10);
}

TEST_CASE("a link to no file or to no heading is seen") {
  const fs::path readme = fs::path(LORA_BENCH_SOURCE_DIR) / "README.md";
  CHECK(why_broken(readme, "docs/no-such.md") == "no such file");
  CHECK(why_broken(readme, "docs/exit-codes.md#no-such") == "no such heading");
  CHECK(why_broken(readme, "docs/exit-codes.md#exit-codes") == "");
}

TEST_CASE("the record of results names no folder of the machine that made it") {
  const auto own_folder = [](const std::string& line) -> std::string {
    for (const char* folder : {"/root/", "/home/", "/tmp/", "/work/", "/mnt/", "/Users/"}) {
      const std::size_t at = line.find(folder);
      // Within a word it is a part of a relative path.
      if (at != std::string::npos &&
          (at == 0 || std::string(" \"'=(:").find(line[at - 1]) != std::string::npos)) {
        return folder;
      }
    }
    return "";
  };
  CHECK(own_folder("\"--out\",\"/root/out/auto.jsonl\"") == "/root/");
  CHECK(own_folder("src/work/x").empty());
  int read = 0;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(LORA_BENCH_SOURCE_DIR) / "docs" / "results")) {
    if (entry.is_regular_file()) {
      std::ifstream in(entry.path());
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        INFO(entry.path().string() << ":" << ++number);
        CHECK(own_folder(line) == "");
      }
      ++read;
    }
  }
  CHECK(read > 20);
}
