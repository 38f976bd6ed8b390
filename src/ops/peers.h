#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lora_bench {

// Kernels of other projects, each a file of Python that comes with the program:
// python/lora_bench/peers/NAME.py, with '_' where NAME has '-'. The command line spells it
// peer:NAME.
[[nodiscard]] bool names_peer(const std::string& spelling);

// Its file. Throws UsageError with the nearest known one where there is no such peer.
[[nodiscard]] std::filesystem::path peer_file(const std::string& spelling);

// One of them as it is here, without loading it.
struct PeerEntry {
  std::string name;          // "peer:vllm"
  std::string summary;       // empty where no Python answers
  std::string why_not_here;  // "" = usable
};
[[nodiscard]] std::vector<PeerEntry> peer_entries();

}  // namespace lora_bench
