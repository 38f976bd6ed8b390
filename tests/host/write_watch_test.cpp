#include "device/write_watch.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device/memory.h"

using namespace lora_bench;

namespace {

using Names = std::vector<std::string>;

void write_and_put_back(void* at) {
  volatile auto* const byte = static_cast<volatile unsigned char*>(at);
  const unsigned char before = *byte;
  *byte = static_cast<unsigned char>(before + 1);
  *byte = before;
}

}  // namespace

TEST_CASE("a write to watched memory is noted and let through, a read is not") {
  const auto memory = make_host_memory();
  GuardedBuffer x(*memory, 100), y(*memory, 100'000);
  auto* const in_x = static_cast<unsigned char*>(x.data());
  {
    const WriteWatch watch({{"x", x.allocation()}, {"y", y.allocation()}});
    CHECK(static_cast<volatile unsigned char*>(in_x)[3] == 0xFF);
    CHECK(watch.written() == Names{});
    write_and_put_back(in_x + 3);
    CHECK(watch.written() == Names{"x"});
    in_x[5] = 7;
    write_and_put_back(static_cast<unsigned char*>(y.data()) + 99'999);
    CHECK(watch.written() == Names{"x", "y"});
  }
  CHECK(in_x[5] == 7);
  in_x[6] = 8;  // nobody watches any more
  const WriteWatch again({{"x", x.allocation()}});
  CHECK(again.written() == Names{});
}

TEST_CASE("the page before every buffer and one behind it can be watched whole") {
  const auto memory = make_host_memory();
  for (const std::int64_t bytes : {1, 100, 4095, 4096, 4097, 9000, 5'000'000}) {
    CAPTURE(bytes);
    GuardedBuffer buffer(*memory, bytes);
    auto* const start = static_cast<std::byte*>(buffer.data());
    const auto all = buffer.allocation();
    const WriteWatch watch(
        {{"before", {all.data(), start}}, {"behind", {start + bytes, all.data() + all.size()}}});
    write_and_put_back(start);
    write_and_put_back(start + bytes - 1);
    CHECK(watch.written() == Names{});
    write_and_put_back(start - 1);
    CHECK(watch.written() == Names{"before"});
    write_and_put_back(start + bytes + 4095);
    CHECK(watch.written() == Names{"before", "behind"});
  }
}

TEST_CASE("of two watches the first one watches") {
  const auto memory = make_host_memory();
  GuardedBuffer x(*memory, 100);
  const WriteWatch first({{"x", x.allocation()}});
  const WriteWatch second({{"x", x.allocation()}});
  write_and_put_back(x.data());
  CHECK(first.written() == Names{"x"});
  CHECK(second.written() == Names{});
}
