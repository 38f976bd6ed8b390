#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/groundwork.h"
#include "verify/staging.h"
#include "verify/step.h"
#include "verify/verify.h"

namespace lora_bench {

// Level 3: relations between launches of one backend, bit for bit as far as its numerics declare,
// else as the oracle says. They find what one launch cannot show: state left over, rows that depend
// on their neighbours, values read that must not matter. The first relation that does not hold, or
// nothing. Uses at most `max_rows` rows of the batch. Without the memory part only
// results are compared, without the bounded part the oracle is not asked. `declared` is what the
// backend declared for the problem when it was asked first; none = it is asked.
[[nodiscard]] std::optional<Failure> check_relations(Groundwork& groundwork, const Backend& backend,
                                                     Memory& memory, std::int64_t max_rows,
                                                     Part without = Part::kNone,
                                                     const std::optional<Numerics>& declared = {});

// The relations of level 3 over one problem and one backend. Each is a member that launches and
// compares, and notes what does not hold. See relations.h.
class Relations {
 public:
  using Bits = std::vector<std::byte>;
  using Derived = std::shared_ptr<DerivedStep>;

  Relations(Groundwork& groundwork, const Backend& backend, Memory& memory, std::int64_t max_rows,
            Part without, const std::optional<Numerics>& declared);

  [[nodiscard]] std::optional<Failure> run();

 private:
  using Check = void (Relations::*)();
  struct Relation {
    const char* name;
    bool holds_for_this_backend;
    Check check;
    const char* hypothesis;  // what it means that it does not hold; "" = anything
  };

  // relations.cpp: what other rows, slots and numbers may not change
  void run_twice() { expect_repeated(launch(base_), base_.problem, same_rows_); }
  void after_another_step();
  void after_a_change_of_one_operand(Stage& stage);
  void one_operand_after_the_other();
  void idle_after_busy();
  void other_values_in_unused_places();
  void permuted_rows();
  void relabelled_adapters();
  void rows_alone();
  // relations_of_replay.cpp: the same launch, many times and over other buffers' contents
  void recorded_once();
  void behind_another_step();
  void in_a_row();
  void many_runs();
  void other_batches();
  void memory_given_back();
  void expect_given_back(const char* what, const std::function<void()>& turn);
  void replay_over(const Step& recorded, const std::vector<Derived>& batches,
                   const std::vector<std::int64_t>& base_rows);
  // relations_of_parts.cpp: the whole and its parts, narrow and wide
  void doubled_inputs();
  void slices_one_by_one();
  void shrink_then_expand();
  void wider_padding();
  void operands_apart();
  void results_beyond_fp16();
  [[nodiscard]] bool supports(const Problem& problem) const;

  [[nodiscard]] Stage stage_for(const Step& first, const Step& second) const;
  Bits launch(const Step& step);
  Bits launch_in(Stage& stage);
  void expect_repeated(const Bits& got, const Problem& problem,
                       const std::vector<std::int64_t>& base_rows, bool doubled = false);
  [[nodiscard]] bool follows(const Bits& got, std::int64_t index, std::int64_t base_index,
                             bool doubled) const;
  // Of one step, launched twice; its row i is row base_rows[i] of the base.
  void expect_same(const Problem& problem, const Bits& expected, const Bits& got,
                   const std::vector<std::int64_t>& base_rows);
  void expect_same_or_right(const Bits& got);
  // The oracle decides; row i of the step is row base_rows[i] of the base.
  void expect_right(DerivedStep& derived, const Numerics& numerics, const Bits& got,
                    const std::vector<std::int64_t>& base_rows);
  void expect_rows_right(const Tensors& tensors, const Bits& got, const std::string& changed);
  // The same of the base, where the same bits by the same declaration are looked at once.
  void expect_base(const Numerics& numerics, const Bits& got);
  [[nodiscard]] Derived some_other_numbers();
  [[nodiscard]] Derived drawn(const std::string& name, const Problem& problem, std::uint64_t seed);
  void note_damage(const std::string& damage);
  void note(std::int64_t base_row, std::int32_t adapter, std::int64_t column, double expected,
            double got);

  const Backend& backend_;
  Memory& memory_;
  Load load_;
  std::uint64_t seed_;
  Part without_;
  std::vector<std::int64_t> origin_;  // [rows of base], the token of the case
  Groundwork& groundwork_;
  Derived of_base_;
  const Step& base_;
  std::vector<std::int64_t> same_rows_;  // 0, 1, ...
  Numerics numerics_;
  Bits base_bits_;
  struct Right {
    Numerics numerics;
    Bits bits;
    std::int64_t compared = 0;
  };
  std::optional<Right> right_;  // what the oracle let pass last of the base
  Failure failure_;
  bool failed_ = false;
  bool damaged_ = false;
  const char* seen_ = nullptr;  // what a relation saw that says more than its hypothesis
};

}  // namespace lora_bench
