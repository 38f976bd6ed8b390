#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "ops/backend.h"
#include "scenario/case.h"

namespace lora_bench {

struct ExportRequest {
  const Case& spec;
  const Backend& backend;
  Memory& memory;  // of the backend's space
  const DeviceFacts& facts;
  std::filesystem::path folder;  // made if missing
  // The scales that the scenario writes; else each adapter has its own, so that a wrong one shows.
  bool scales_as_written = false;
};

struct ExportedFiles {
  std::filesystem::path tensors;   // FOLDER/CASE.safetensors
  std::filesystem::path metadata;  // FOLDER/CASE.json
  int replaced = 0;                // how many of them were there before
};

// Throws UsageError, before anything is written, where two of the cases have one file: what is
// neither letter nor digit nor "-" nor "." becomes "_" in its name.
void refuse_shared_files(const std::vector<std::string>& case_ids);

// Throws UsageError for a layer that is more than a product and one op.
void refuse_unexported(const Case& spec);

// Launches the backend once on bounded data and writes inputs, plan, its output, and what the
// oracle expects of it (docs/export.md lists the tensors), so that others can check us without our
// code. Throws UsageError when the backend cannot do the case, EnvironmentError when a file cannot
// be written.
[[nodiscard]] ExportedFiles export_case(const ExportRequest& request);

}  // namespace lora_bench
