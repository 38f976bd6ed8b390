#include "device/write_watch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <utility>

namespace lora_bench {
namespace {

// What the signal handler may read: it must not allocate or lock.
struct Pages {
  std::uintptr_t first = 0, past = 0;
  std::atomic<bool> written{false};
};

std::atomic<bool> held{false};
std::atomic<std::size_t> watched{0};  // of the pages below
std::vector<Pages>& all_pages() {
  static std::vector<Pages> pages;
  return pages;
}
struct sigaction action_before;

void protect(const Pages& range, int protection) {
  if (range.past > range.first) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address came as a number from the system
    ::mprotect(reinterpret_cast<void*>(range.first), range.past - range.first, protection);
  }
}

void note_write(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  std::vector<Pages>& pages = all_pages();
  for (std::size_t index = 0; index < watched.load(); ++index) {
    Pages& range = pages[index];
    if (address >= range.first && address < range.past) {
      range.written.store(true);
      protect(range, PROT_READ | PROT_WRITE);
      return;  // the write is tried again
    }
  }
  ::sigaction(signal, &action_before, nullptr);  // which deals with it when it is tried again
}

}  // namespace

WriteWatch::WriteWatch(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
  watches_ = !held.exchange(true);
  if (!watches_) {
    return;
  }
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::vector<Pages> pages(ranges_.size());
  for (std::size_t index = 0; index < ranges_.size(); ++index) {
    const auto first = reinterpret_cast<std::uintptr_t>(ranges_[index].bytes.data());
    pages[index].first = (first + page - 1) / page * page;
    pages[index].past = (first + ranges_[index].bytes.size()) / page * page;
  }
  all_pages().swap(pages);
  watched.store(ranges_.size());
  struct sigaction action {};
  action.sa_sigaction = note_write;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, &action_before);
  for (const Pages& range : all_pages()) {
    protect(range, PROT_READ);
  }
}

WriteWatch::~WriteWatch() {
  if (watches_) {
    for (const Pages& range : all_pages()) {
      protect(range, PROT_READ | PROT_WRITE);
    }
    ::sigaction(SIGSEGV, &action_before, nullptr);
    watched.store(0);
    held.store(false);
  }
}

std::vector<std::string> WriteWatch::written() const {
  std::vector<std::string> names;
  for (std::size_t index = 0; watches_ && index < ranges_.size(); ++index) {
    if (all_pages()[index].written.load()) {
      names.push_back(ranges_[index].name);
    }
  }
  return names;
}

}  // namespace lora_bench
