#include "verify/staging.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "support/plain_backend.h"
#include "support/problems.h"

using namespace lora_bench;

namespace {

using Addresses = std::map<std::string, const void*>;

// By the names that a stage gives them; only what the op does not write.
Addresses inputs_of(const Operands& operands) {
  Addresses inputs{{"x", operands.x},
                   {"adapter_of_token", operands.adapter_of_token},
                   {"token_order", operands.token_order},
                   {"active_ids", operands.active_ids},
                   {"group_starts", operands.group_starts},
                   {"rank", operands.rank},
                   {"scale", operands.scale}};
  for (std::size_t slice = 0; slice < operands.a.size(); ++slice) {
    const std::string index = "[" + std::to_string(slice) + "]";
    inputs["a" + index] = operands.a[slice];
    inputs["b" + index] = operands.b[slice];
    inputs["bias" + index] = operands.bias[slice];
  }
  return inputs;
}

Addresses all_of(const Operands& operands) {
  Addresses all = inputs_of(operands);
  all["h"] = operands.h;
  all["y"] = operands.y;
  all["workspace"] = operands.workspace;
  return all;
}

void flip(const void* start, std::int64_t offset) {
  auto* byte = static_cast<unsigned char*>(const_cast<void*>(start)) + offset;
  *byte = static_cast<unsigned char>(*byte ^ 0x5AU);
}

Problem with_bias() {
  Problem problem = linear_problem();
  problem.bias = true;
  return problem;
}

// What is seen of a launch that ends with one flipped byte.
Stage::Look look_after(const std::function<void(const Operands&)>& harm,
                       const Problem& problem = with_bias()) {
  const Tensors tensors = draw_tensors(problem, Fill::kExact, 1);
  const auto memory = make_host_memory();
  Stage stage(*memory, problem, tensors, {64});
  stage.launch(PlainBackend({.then = [&](const Problem&, const Operands& o) { harm(o); }}));
  Stage::Look look = stage.look();
  CHECK(stage.damage() == look.damage);
  return look;
}

// The names of a stage, without addresses.
std::vector<std::string> names(Addresses (*of)(const Operands&)) {
  std::vector<std::string> names;
  look_after([&](const Operands& operands) {
    for (const auto& [name, address] : of(operands)) {
      names.push_back(name);
    }
  });
  return names;
}

}  // namespace

TEST_CASE("staging: of two draws each shifts the operands that the other does not") {
  const Problem problem = with_bias();
  const Tensors tensors = draw_tensors(problem, Fill::kExact, 1);
  const auto memory = make_host_memory();
  const auto shifted = [&](std::uint64_t draw) {
    std::set<std::string> names;
    Stage stage(*memory, problem, tensors, {64}, Alignment::kSome, PlanRoom::kExact, draw);
    stage.launch(PlainBackend({.then = [&](const Problem&, const Operands& operands) {
      for (const auto& [name, address] : all_of(operands)) {
        if (reinterpret_cast<std::uintptr_t>(address) % 256 != 0) {
          names.insert(name);
        }
      }
    }}));
    return names;
  };
  std::set<std::set<std::string>> drawn;
  for (std::uint64_t draw = 0; draw < 16; draw += 2) {
    const std::set<std::string> some = shifted(draw), others = shifted(draw + 1);
    CHECK(some.size() + others.size() == names(all_of).size() - 1);  // all but the workspace
    for (const std::string& name : some) {
      CHECK(others.count(name) == 0);
    }
    drawn.insert(some);
  }
  CHECK(drawn.size() == 8);
}

TEST_CASE("staging: every operand comes to lie 1, 2, 4 or 8 elements beyond a boundary") {
  const Problem problem = with_bias();
  const Tensors tensors = draw_tensors(problem, Fill::kExact, 1);
  const auto memory = make_host_memory();
  std::map<std::string, std::set<std::uintptr_t>> beyond;
  for (std::uint64_t draw = 0; draw < 64; ++draw) {
    Stage stage(*memory, problem, tensors, {64}, Alignment::kSome, PlanRoom::kExact, draw);
    stage.launch(PlainBackend({.then = [&](const Problem&, const Operands& operands) {
      for (const auto& [name, address] : all_of(operands)) {
        beyond[name].insert(reinterpret_cast<std::uintptr_t>(address) % 256);
      }
    }}));
  }
  const auto bytes = static_cast<std::uintptr_t>(size_bytes(problem.dtype[Role::kY]));
  const std::set<std::uintptr_t> wanted{0, bytes, 2 * bytes, 4 * bytes, 8 * bytes};
  CHECK(beyond["x"] == wanted);
  CHECK(beyond["y"] == wanted);
  CHECK(beyond["workspace"] == std::set<std::uintptr_t>{0});
}

TEST_CASE("staging: a launch that harms nothing is told so") {
  const Stage::Look look = look_after([](const Operands&) {});
  CHECK(look.damage.empty());
  CHECK(look.changed_input.empty());
}

TEST_CASE("staging: a change of any input is told by its name") {
  for (const std::string& name : names(inputs_of)) {
    CAPTURE(name);
    const Stage::Look look =
        look_after([&](const Operands& operands) { flip(inputs_of(operands).at(name), 0); });
    CHECK(look.changed_input == "input " + name + " changed");
    CHECK(look.damage.empty());
  }
}

TEST_CASE("staging: a change of the last byte of an input is seen too") {
  for (const Operand& operand : operands_of(with_bias())) {
    if (operand.written) {
      continue;
    }
    const std::string name = label(operand);
    const std::int64_t at = operand.bytes() - 1;
    CAPTURE(name);
    CHECK((at > 64 || operand.role == Role::kBias));
    const Stage::Look look =
        look_after([&](const Operands& operands) { flip(inputs_of(operands).at(name), at); });
    CHECK(look.changed_input == "input " + name + " changed");
    CHECK(look.damage.empty());
  }
}

TEST_CASE("staging: a change of the last byte of a large input is seen too") {
  Problem problem = with_bias();
  problem.in_features = problem.x_stride = 1 << 16;
  const std::int64_t last_of_x = operand_of(problem, Role::kX).bytes() - 1;
  const std::int64_t last_of_a = operand_of(problem, Role::kA, 1).bytes() - 1;
  CHECK(last_of_x > 1 << 20);
  const auto harmed = [&](const std::function<void(const Operands&)>& harm) {
    return look_after(harm, problem).changed_input;
  };
  CHECK(harmed([](const Operands&) {}) == "");
  CHECK(harmed([&](const Operands& operands) { flip(operands.x, last_of_x); }) ==
        "input x changed");
  CHECK(harmed([&](const Operands& operands) { flip(operands.a[1], last_of_a); }) ==
        "input a[1] changed");
}

TEST_CASE("staging: a damaged guard of any operand is told by its name") {
  for (const std::string& name : names(all_of)) {
    CAPTURE(name);
    const Stage::Look look =
        look_after([&](const Operands& operands) { flip(all_of(operands).at(name), -1); });
    CHECK(look.damage.find("guard of " + name + " damaged: ") == 0);
    CHECK(look.changed_input.empty());
  }
}
