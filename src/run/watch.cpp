#include "run/watch.h"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace lora_bench {
namespace {

std::atomic<bool> abandoned{false};

CallRecord& own_record() {
  static CallRecord record{0};
  return record;
}

std::atomic<CallRecord*> calls{&own_record()};

class Inside {
 public:
  Inside(Pulse& pulse, Call call) : call_(call), pulse_(pulse), before_(pulse.enter()) {}
  ~Inside() { pulse_.leave(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  CallInHand call_;
  Pulse& pulse_;
  std::int64_t before_;
};

class InLaunch {
 public:
  explicit InLaunch(Pulse& pulse)
      : inside_(pulse, Call::kLaunch), pulse_(pulse), begun_ns_(Pulse::now_ns()) {}
  ~InLaunch() { pulse_.note_launch(begun_ns_); }
  InLaunch(const InLaunch&) = delete;
  InLaunch& operator=(const InLaunch&) = delete;

 private:
  Inside inside_;
  Pulse& pulse_;
  std::int64_t begun_ns_;
};

template <typename ArrayProblem>
class WatchedMaker final : public ArrayMaker<ArrayProblem> {
 public:
  WatchedMaker(const ArrayMaker<ArrayProblem>& inner, Pulse& pulse)
      : inner_(inner), pulse_(pulse) {}
  [[nodiscard]] Support supports(const ArrayProblem& problem,
                                 const DeviceFacts& device) const override {
    const Inside inside(pulse_, Call::kSupports);
    return inner_.supports(problem, device);
  }
  void launch(const ArrayProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    const InLaunch inside(pulse_);
    inner_.launch(problem, operands, stream);
  }

 private:
  const ArrayMaker<ArrayProblem>& inner_;
  Pulse& pulse_;
};

class WatchedBackend final : public Backend {
 public:
  WatchedBackend(std::shared_ptr<const Backend> inner, std::shared_ptr<Pulse> pulse)
      : inner_(std::move(inner)), pulse_(std::move(pulse)) {
    if (const MetadataBuilder* builder = inner_->metadata()) {
      metadata_.emplace(*builder, *pulse_);
    }
    if (const Quantiser* quantiser = inner_->quantiser()) {
      quantiser_.emplace(*quantiser, *pulse_);
    }
  }
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string_view summary() const override { return inner_->summary(); }
  [[nodiscard]] Space space() const override { return inner_->space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    const Inside inside(*pulse_, Call::kSupports);
    return inner_->supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    const Inside inside(*pulse_, Call::kNumerics);
    return inner_->numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const Inside inside(*pulse_, Call::kWorkspace);
    return inner_->workspace_bytes(problem);
  }
  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    const Inside inside(*pulse_, Call::kWorkspace);
    return inner_->prepared_bytes(problem);
  }
  void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
    const Inside inside(*pulse_, Call::kLaunch);
    inner_->prepare(problem, operands, stream);
  }
  [[nodiscard]] bool slow_to_launch() const override { return inner_->slow_to_launch(); }
  [[nodiscard]] bool zeroes(const Problem& problem) const override {
    return inner_->zeroes(problem);
  }
  void launch_zero(const Problem& problem, const Operands& operands, Stream stream) const override {
    const Inside inside(*pulse_, Call::kLaunch);
    inner_->launch_zero(problem, operands, stream);
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const InLaunch inside(*pulse_);
    inner_->launch(problem, operands, stream);
  }
  [[nodiscard]] const FusedLayer* fused() const override { return inner_->fused(); }
  [[nodiscard]] const MetadataBuilder* metadata() const override {
    return metadata_ ? &*metadata_ : nullptr;
  }
  [[nodiscard]] const Quantiser* quantiser() const override {
    return quantiser_ ? &*quantiser_ : nullptr;
  }

 private:
  std::shared_ptr<const Backend> inner_;
  std::shared_ptr<Pulse> pulse_;
  std::optional<WatchedMaker<MetadataProblem>> metadata_;
  std::optional<WatchedMaker<QuantiseProblem>> quantiser_;
};

class WatchedMemory final : public Memory {
 public:
  WatchedMemory(std::shared_ptr<Memory> inner, std::shared_ptr<Pulse> pulse)
      : inner_(std::move(inner)), pulse_(std::move(pulse)) {}
  [[nodiscard]] Space space() const override { return inner_->space(); }
  [[nodiscard]] void* allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* address) noexcept override { inner_->release(address); }
  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->copy_out(to, from, bytes);
  }
  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->copy_within(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::int64_t bytes) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->fill(to, value, bytes);
  }
  void enqueue_copy(void* stream, void* to, const void* from, std::int64_t bytes) override {
    inner_->enqueue_copy(stream, to, from, bytes);
  }
  void synchronize() override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->synchronize();
  }
  void enqueue_and_wait(const std::function<void(void* stream)>& enqueue) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->enqueue_and_wait(enqueue);
  }
  [[nodiscard]] std::int64_t available_bytes() const override { return inner_->available_bytes(); }
  [[nodiscard]] std::function<void()> record(std::function<void(void* stream)> enqueue) override {
    const Inside inside(*pulse_, Call::kWait);
    return [run = inner_->record(std::move(enqueue)), pulse = pulse_] {
      const Inside running(*pulse, Call::kWait);
      run();
    };
  }

 private:
  std::shared_ptr<Memory> inner_;
  std::shared_ptr<Pulse> pulse_;
};

class WatchedClock final : public Clock {
 public:
  WatchedClock(std::shared_ptr<Clock> inner, std::shared_ptr<Pulse> pulse)
      : inner_(std::move(inner)), pulse_(std::move(pulse)) {}
  void load(int slot, std::vector<Launch> sequence) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->load(slot, std::move(sequence));
  }
  [[nodiscard]] double run_seconds(int slot) override {
    const Inside inside(*pulse_, Call::kWait);
    return inner_->run_seconds(slot);
  }
  [[nodiscard]] Launch kept(Launch launch) override {
    const Inside inside(*pulse_, Call::kWait);
    return inner_->kept(std::move(launch));
  }
  [[nodiscard]] Conditions conditions() override { return inner_->conditions(); }
  [[nodiscard]] double resolution_seconds() const override { return inner_->resolution_seconds(); }
  [[nodiscard]] double now_seconds() override { return inner_->now_seconds(); }
  [[nodiscard]] Launch separator() override { return inner_->separator(); }
  [[nodiscard]] double sm_clock_mhz() override { return inner_->sm_clock_mhz(); }
  void rest(double seconds) override { inner_->rest(seconds); }

 private:
  std::shared_ptr<Clock> inner_;
  std::shared_ptr<Pulse> pulse_;
};

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<Pulse> pulse)
      : inner_(std::move(inner)), pulse_(std::move(pulse)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string version() const override { return inner_->version(); }
  [[nodiscard]] bool rounds_each_sum() const override { return inner_->rounds_each_sum(); }
  void all_reduce(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream stream) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->all_reduce(shape, parts, to, stream);
  }
  void all_gather(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream stream) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->all_gather(shape, parts, to, stream);
  }
  void gather(const PartShape& shape, std::span<void* const> parts, void* to,
              Stream stream) override {
    const Inside inside(*pulse_, Call::kWait);
    inner_->gather(shape, parts, to, stream);
  }

 private:
  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<Pulse> pulse_;
};

// Shared by the waiting and the working thread, so that it outlives whichever goes first.
struct Rendezvous {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::exception_ptr failure;
};

}  // namespace

void record_calls(CallRecord* record) { calls.store(record); }

CallInHand::CallInHand(Call call)
    : before_(calls.load()->exchange(static_cast<std::uint32_t>(call))) {}

CallInHand::~CallInHand() { calls.load()->store(before_); }

std::int64_t Pulse::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t Pulse::enter() {
  const std::int64_t before = entered_ns_.load();
  if (before == 0) {
    entered_ns_.store(now_ns());
  }
  return before;
}

std::optional<double> Pulse::first_launch_seconds() const {
  const std::int64_t nanoseconds = first_launch_ns_.load();
  return nanoseconds < 0 ? std::nullopt : std::optional(static_cast<double>(nanoseconds) * 1e-9);
}

void Pulse::note_launch(std::int64_t begun_ns) {
  if (first_launch_ns_.load(std::memory_order_relaxed) < 0) {
    first_launch_ns_.store(now_ns() - begun_ns);
  }
}

double Pulse::seconds_inside() const {
  const std::int64_t entered = entered_ns_.load();
  return entered == 0 ? 0.0 : static_cast<double>(now_ns() - entered) * 1e-9;
}

std::shared_ptr<const Backend> watched(std::shared_ptr<const Backend> backend,
                                       std::shared_ptr<Pulse> pulse) {
  return std::make_shared<WatchedBackend>(std::move(backend), std::move(pulse));
}

std::shared_ptr<Memory> watched(std::shared_ptr<Memory> memory, std::shared_ptr<Pulse> pulse) {
  return std::make_shared<WatchedMemory>(std::move(memory), std::move(pulse));
}

std::shared_ptr<Communicator> watched(std::shared_ptr<Communicator> communicator,
                                      std::shared_ptr<Pulse> pulse) {
  return std::make_shared<WatchedCommunicator>(std::move(communicator), std::move(pulse));
}

std::shared_ptr<Clock> watched(std::shared_ptr<Clock> clock, std::shared_ptr<Pulse> pulse) {
  return std::make_shared<WatchedClock>(std::move(clock), std::move(pulse));
}

bool run_unless(const std::function<bool()>& stop, std::function<void()> work) {
  const auto meeting = std::make_shared<Rendezvous>();
  std::thread worker([meeting, work = std::move(work)]() mutable {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // what it captured goes before the other side is told
    const std::lock_guard lock(meeting->mutex);
    meeting->failure = failure;
    meeting->done = true;
    meeting->ended.notify_all();
  });
  std::unique_lock lock(meeting->mutex);
  while (!meeting->ended.wait_for(lock, std::chrono::milliseconds(20),
                                  [&] { return meeting->done; })) {
    if (stop()) {
      abandoned.store(true);
      worker.detach();
      return false;
    }
  }
  lock.unlock();
  worker.join();
  if (meeting->failure) {
    std::rethrow_exception(meeting->failure);
  }
  return true;
}

Ended run_watched(std::function<void()> work, const Pulse& pulse, double timeout_s) {
  const bool returned =
      run_unless([&] { return pulse.seconds_inside() > timeout_s; }, std::move(work));
  return returned ? Ended::kReturned : Ended::kHung;
}

bool any_abandoned() { return abandoned.load(); }

namespace {

std::atomic<bool> own_request{false};
std::atomic<std::atomic<bool>*> asked_to_end{&own_request};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch such a flag");

// What comes within half a second is one request: `timeout` signals a program, then its group.
constexpr std::int64_t kOneRequestNs = 500'000'000;
std::atomic<std::int64_t> asked_at_ns{0};

// The first request is noted, the next one ends the program.
extern "C" void on_signal(int signal) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  std::int64_t first_ns = 0;
  asked_to_end.load()->store(true);
  if (!asked_at_ns.compare_exchange_strong(first_ns, now_ns) &&
      now_ns - first_ns >= kOneRequestNs) {
    std::signal(signal, SIG_DFL);
    static_cast<void>(std::raise(signal));
  }
}

}  // namespace

void install_signal_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void record_interrupt(std::atomic<bool>* record) {
  // A signal that came before stays said.
  record->store(record->load() || interrupted());
  asked_to_end.store(record);
}

bool interrupted() { return asked_to_end.load()->load(); }

}  // namespace lora_bench
