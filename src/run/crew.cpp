#include "run/crew.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "run/isolate.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

// The rows of a run while several threads make them: each waits for the answers of one process.
class SharedRows {
 public:
  SharedRows(const Crew& crew, const std::vector<PlannedRow>& planned)
      : crew_(crew), planned_(planned), rows_(planned.size()) {}

  // A thread: case by case until none is left.
  void serve() {
    try {
      Isolation process(crew_.request, crew_.selected);
      for (Range range = next_case(); range.begin < range.end; range = next_case()) {
        for (std::size_t i = range.begin; i < range.end && !stopped(); ++i) {
          put(i, process.run(planned_[i]));
        }
      }
    } catch (...) {
      fail(std::current_exception());
    }
    leave();
  }

  // The row when it is there; none when it will not come. Throws what a thread threw.
  [[nodiscard]] std::optional<Row> wait_for(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rows_[index] || error_ || serving_ == 0; });
    if (!rows_[index] && error_) {
      std::rethrow_exception(error_);
    }
    std::optional<Row> row = std::move(rows_[index]);
    rows_[index].reset();
    return row;
  }

  void join_in() {
    const std::lock_guard lock(mutex_);
    ++serving_;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }

 private:
  struct Range {
    std::size_t begin, end;
  };

  Range next_case() {
    const std::lock_guard lock(mutex_);
    const std::size_t begin = next_;
    if (begin == planned_.size() || stopped_ || interrupted()) {
      return {begin, begin};
    }
    while (next_ < planned_.size() && planned_[next_].spec == planned_[begin].spec) {
      ++next_;
    }
    return {begin, next_};
  }

  [[nodiscard]] bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_ || interrupted();
  }

  void put(std::size_t index, Row row) {
    const std::lock_guard lock(mutex_);
    rows_[index] = std::move(row);
    changed_.notify_all();
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    error_ = std::move(error);
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    --serving_;
    changed_.notify_all();
  }

  const Crew& crew_;
  const std::vector<PlannedRow>& planned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Row>> rows_;  // those that are made and not yet taken
  std::size_t next_ = 0;                  // row that nobody makes yet
  std::int64_t serving_ = 0;              // threads at work
  bool stopped_ = false;
  std::exception_ptr error_;
};

// Lets no thread outlive the rows, whatever is thrown.
class Threads {
 public:
  Threads(SharedRows& rows, std::int64_t count) : rows_(rows) {
    for (std::int64_t i = 0; i < count; ++i) {
      rows.join_in();
      threads_.emplace_back([&rows] { rows.serve(); });
    }
  }
  ~Threads() {
    rows_.stop();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  SharedRows& rows_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::int64_t jobs_of(const RunRequest& request, const std::map<std::string, Selected>& selected,
                     Space space) {
  constexpr std::int64_t kMost = 4;
  constexpr std::int64_t kCoresOfEach = 4;
  if (request.jobs != 0) {
    return request.jobs;
  }
  const bool any_plugin = std::any_of(selected.begin(), selected.end(), [](const auto& entry) {
    return !entry.second.plugin.empty();
  });
  const bool pays = space == Space::kDevice && !any_plugin && !request.buffers_apart;
  const std::int64_t cores = std::thread::hardware_concurrency();
  return pays ? std::clamp<std::int64_t>(cores / kCoresOfEach, 1, kMost) : 1;
}

bool make_rows(const Crew& crew, const std::vector<PlannedRow>& planned,
               const std::function<bool(const PlannedRow&, const Row&)>& take) {
  SharedRows rows(crew, planned);
  const Threads threads(rows, crew.processes);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const std::optional<Row> row = rows.wait_for(i);
    if (!row || !take(planned[i], *row)) {
      return false;
    }
  }
  return true;
}

}  // namespace lora_bench
