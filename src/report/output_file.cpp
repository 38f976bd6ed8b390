#include "report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace lora_bench {

OutputFile::OutputFile(std::filesystem::path path, bool append) : path_(std::move(path)) {
  // Without O_NONBLOCK opening a pipe that nobody reads would wait for a reader, with O_RDWR it
  // would have one. Of a regular file the contents are read again.
  struct stat there {};
  const bool special = ::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
  const int flags =
      O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_APPEND : 0) | (special ? O_WRONLY : O_RDWR);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) {
    fail("cannot open", errno);
  }
  if (::fcntl(descriptor_, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    close_and_fail("cannot open", errno);
  }
  if (regular_bytes() < 0) {
    return;
  }
  lock();
  if (!append && ::ftruncate(descriptor_, 0) != 0) {
    close_and_fail("cannot empty", errno);
  }
  own_.add(read_all());
}

// The system takes the lock back when the file is closed, however the program ends. Where a file
// system knows no locks there is none.
void OutputFile::lock() {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    return;
  }
  ::close(std::exchange(descriptor_, -1));
  throw EnvironmentError(
      fmt::format("cannot write '{}': another lora-bench is writing it; wait for its end, or name "
                  "another file",
                  path_.string()));
}

void OutputFile::close_and_fail(const char* action, int error) {
  ::close(std::exchange(descriptor_, -1));
  fail(action, error);
}

void OutputFile::Contents::add(std::string_view text) {
  constexpr std::uint64_t kPrime = 0x100000001b3U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * kPrime;
  }
  bytes += std::ssize(text);
}

std::int64_t OutputFile::regular_bytes() const {
  struct stat now {};
  return ::fstat(descriptor_, &now) == 0 && S_ISREG(now.st_mode) ? now.st_size : -1;
}

void OutputFile::expect_own_contents() const {
  Contents found;
  found.add(read_all());
  if (found.bytes != own_.bytes || found.hash != own_.hash) {
    throw EnvironmentError(fmt::format(
        "'{}' holds what this program did not write there: another one writes into it, or a "
        "backend "
        "writes into file descriptors that it did not open (with --isolate it has none of this "
        "file); what the file holds is not to be trusted",
        path_.string()));
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void OutputFile::fail(const char* action, int error) const {
  throw EnvironmentError(fmt::format("{} '{}': {}", action, path_.string(), std::strerror(error)));
}

std::string OutputFile::read_all() const {
  std::string text;
  std::array<char, 65536> block{};
  while (true) {
    const ssize_t got =
        ::pread(descriptor_, block.data(), block.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail("cannot read", errno);
    }
    if (got == 0) {
      return text;
    }
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

void OutputFile::truncate(std::int64_t bytes) {
  // Where a file is not appended to, what is written next would leave a hole of zeros.
  if (::ftruncate(descriptor_, bytes) != 0 || ::lseek(descriptor_, bytes, SEEK_SET) < 0) {
    fail("cannot shorten", errno);
  }
  own_ = {};
  if (regular_bytes() >= 0) {
    own_.add(read_all());
  }
}

void OutputFile::write(std::string_view record) {
  const std::int64_t before = regular_bytes();
  if (before >= 0 && before != own_.bytes) {
    expect_own_contents();
  }
  Contents after = own_;
  after.add(record);
  while (!record.empty()) {
    const ssize_t written = ::write(descriptor_, record.data(), record.size());
    if (written >= 0) {
      record.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const int error = errno;
      if (before >= 0 && ::ftruncate(descriptor_, before) == 0) {
        ::lseek(descriptor_, before, SEEK_SET);
      }
      fail("cannot write", error);
    }
  }
  own_ = after;
}

void OutputFile::close() {
  if (descriptor_ >= 0 && regular_bytes() >= 0) {
    expect_own_contents();
  }
  if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0) {
    fail("cannot close", errno);
  }
}

}  // namespace lora_bench
