#include "report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lora_bench {

OutputFile::OutputFile(std::filesystem::path path, bool append) : path_(std::move(path)) {
  // Without O_NONBLOCK opening a pipe that nobody reads would wait for a reader.
  const int flags = O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_RDWR | O_APPEND : O_WRONLY);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) {
    fail("cannot open", errno);
  }
  struct stat opened {};
  if (::fstat(descriptor_, &opened) != 0 ||
      ::fcntl(descriptor_, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    close_and_fail("cannot open", errno);
  }
  if (S_ISREG(opened.st_mode)) {
    lock();
    if (!append && ::ftruncate(descriptor_, 0) != 0) {
      close_and_fail("cannot empty", errno);
    }
  }
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
}

void OutputFile::write(std::string_view record) {
  struct stat before {};
  const bool regular = ::fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  while (!record.empty()) {
    const ssize_t written = ::write(descriptor_, record.data(), record.size());
    if (written >= 0) {
      record.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const int error = errno;
      if (regular && ::ftruncate(descriptor_, before.st_size) == 0) {
        ::lseek(descriptor_, before.st_size, SEEK_SET);
      }
      fail("cannot write", error);
    }
  }
}

void OutputFile::close() {
  if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0) {
    fail("cannot close", errno);
  }
}

}  // namespace lora_bench
