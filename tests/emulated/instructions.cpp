#include "emulated/instructions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lora_bench::emulated {
namespace {

float number(Element element, std::uint16_t bits) {
  if (element == Element::kBf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static const std::vector<float> halves = [] {
    std::vector<float> all(1U << 16);
    for (std::uint32_t code = 0; code < all.size(); ++code) {
      __half_raw raw;
      raw.x = static_cast<std::uint16_t>(code);
      all[code] = __half2float(__half(raw));
    }
    return all;
  }();
  return halves[bits];
}

struct Pair {
  float low, high;
};
Pair numbers(Element element, std::uint32_t bits) {
  return {number(element, static_cast<std::uint16_t>(bits)),
          number(element, static_cast<std::uint16_t>(bits >> 16))};
}

// Products without loss, added to the sum before, rounded once.
template <int kDepth>
float dot(float sum, const float (&left)[kDepth], const float (&right)[kDepth]) {
  double total = sum;
  for (int k = 0; k < kDepth; ++k) {
    total += static_cast<double>(left[k]) * static_cast<double>(right[k]);
  }
  return static_cast<float>(total);
}

}  // namespace

std::uint16_t two_codes(Code format, float high, float low) {
  // The code whose number is nearest, by trying all; of two that are as near the even one.
  const auto code_of = [&](float value) {
    const int bits = format == Code::kE4m3 ? 3 : 2;
    const int bias = format == Code::kE4m3 ? 7 : 15;
    const int last = format == Code::kE4m3 ? 0x7E : 0x7B;
    const auto number_of = [&](int code) {
      const int exponent = code >> bits;
      const double fraction = code & ((1 << bits) - 1);
      return exponent == 0 ? std::ldexp(fraction, 1 - bias - bits)
                           : std::ldexp((1 << bits) + fraction, exponent - bias - bits);
    };
    // No number is nearer to one beyond the largest than the largest.
    const double magnitude = std::min(std::fabs(static_cast<double>(value)), number_of(last));
    int nearest = 0;
    for (int code = 1; code <= last; ++code) {
      const double before = std::fabs(number_of(nearest) - magnitude);
      const double here = std::fabs(number_of(code) - magnitude);
      nearest = here < before || (here == before && code % 2 == 0) ? code : nearest;
    }
    return nearest | (std::signbit(value) ? 0x80 : 0);
  };
  return static_cast<std::uint16_t>(code_of(high) << 8 | code_of(low));
}

std::uint32_t halves_of_e4m3(std::uint32_t codes) {
  const auto half_of = [](std::uint32_t code) {
    const auto exponent = static_cast<int>(code >> 3 & 0xF);
    const auto fraction = static_cast<float>(code & 7);
    float value =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    if ((code & 0x7F) == 0x7F) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
    return std::uint32_t{__half_as_ushort(__float2half_rn((code & 0x80) != 0 ? -value : value))};
  };
  return half_of(codes >> 8) << 16 | half_of(codes);
}

void mma_16_8_16(Element element, float& d0, float& d1, float& d2, float& d3, std::uint32_t a0,
                 std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                 std::uint32_t b1) {
  const Brought* const all = meet_in_warp({{a0, a1, a2, a3, b0, b1}});
  const unsigned g = own_lane() / 4;
  const unsigned t = own_lane() % 4;
  float rows[2][16];
  float columns[2][16];
  for (unsigned quarter = 0; quarter < 4; ++quarter) {
    const auto place = [&](float(&line)[16], std::uint32_t low, std::uint32_t high) {
      const Pair first = numbers(element, low);
      const Pair second = numbers(element, high);
      line[2 * quarter] = first.low;
      line[2 * quarter + 1] = first.high;
      line[2 * quarter + 8] = second.low;
      line[2 * quarter + 9] = second.high;
    };
    const std::uint32_t* const of_rows = all[4 * g + quarter].words;
    place(rows[0], of_rows[0], of_rows[2]);
    place(rows[1], of_rows[1], of_rows[3]);
    for (unsigned c = 0; c < 2; ++c) {
      const std::uint32_t* const of_column = all[4 * (2 * t + c) + quarter].words;
      place(columns[c], of_column[4], of_column[5]);
    }
  }
  d0 = dot(d0, rows[0], columns[0]);
  d1 = dot(d1, rows[0], columns[1]);
  d2 = dot(d2, rows[1], columns[0]);
  d3 = dot(d3, rows[1], columns[1]);
}

void mma_16_8_8(float& d0, float& d1, float& d2, float& d3, std::uint32_t a0, std::uint32_t a1,
                std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  const Brought* const all = meet_in_warp({{a0, a1, a2, a3, b0, b1}});
  constexpr std::uint32_t kTf32 = 0xFFFFE000U;
  const auto value = [](std::uint32_t bits) { return std::bit_cast<float>(bits & kTf32); };
  const unsigned g = own_lane() / 4;
  const unsigned t = own_lane() % 4;
  float rows[2][8];
  float columns[2][8];
  for (unsigned quarter = 0; quarter < 4; ++quarter) {
    const std::uint32_t* const of_rows = all[4 * g + quarter].words;
    for (unsigned half = 0; half < 2; ++half) {
      rows[0][quarter + 4 * half] = value(of_rows[2 * half]);
      rows[1][quarter + 4 * half] = value(of_rows[2 * half + 1]);
      for (unsigned c = 0; c < 2; ++c) {
        columns[c][quarter + 4 * half] = value(all[4 * (2 * t + c) + quarter].words[4 + half]);
      }
    }
  }
  d0 = dot(d0, rows[0], columns[0]);
  d1 = dot(d1, rows[0], columns[1]);
  d2 = dot(d2, rows[1], columns[0]);
  d3 = dot(d3, rows[1], columns[1]);
}

void ldmatrix(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2, std::uint32_t& r3,
              std::uint32_t row) {
  const Brought* const all = meet_in_warp({{row}});
  const unsigned lane = own_lane();
  std::uint32_t* const to[4] = {&r0, &r1, &r2, &r3};
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const std::uint32_t from = all[8 * matrix + lane / 4].words[0];
    if (from % 16 != 0) {
      trap("ldmatrix: a row that does not begin on 16 bytes");
    }
    std::memcpy(to[matrix], static_cast<const std::byte*>(from_shared(from)) + lane % 4 * 4, 4);
  }
}

namespace {

// 16 elements of a row of 128, 64 or 32 bytes. The chunks of 16 bytes of a row are exchanged by as
// many bits of the address above the lowest 7 as tell them apart.
void swizzled_row(Element element, std::uint64_t descriptor, int row, float (&to)[16]) {
  const auto mode = static_cast<std::uint32_t>(descriptor >> 62);
  if (mode == 0) {
    trap("wgmma: rows that are not swizzled");
  }
  const std::uint32_t row_bytes = 256U >> mode;
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3FFF) << 4;
  const auto eight_rows = static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFF) << 4;
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    const std::uint32_t linear = start + static_cast<std::uint32_t>(row / 8) * eight_rows +
                                 static_cast<std::uint32_t>(row % 8) * row_bytes + chunk * 16;
    const std::uint32_t place = linear ^ (linear >> 7 & (row_bytes / 16 - 1)) << 4;
    std::uint16_t bits[8];
    std::memcpy(bits, from_shared(rank_in_cluster() << kBlockBits | place), 16);
    for (std::uint32_t i = 0; i < 8; ++i) {
      to[8 * chunk + i] = number(element, bits[i]);
    }
  }
}

// Of a thread: its two rows times the columns that it has sums of.
struct RowsProduct {
  Element element;
  int columns;
  float* d;
  std::uint64_t b;
  bool add;

  void multiply(const float (&low)[16], const float (&high)[16]) const {
    const int t = static_cast<int>(own_lane() % 4);
    for (int c = 0; c < columns / 4; ++c) {
      float column[16];
      swizzled_row(element, b, c / 2 * 8 + 2 * t + c % 2, column);
      float& of_low = d[c / 2 * 4 + c % 2];
      float& of_high = d[c / 2 * 4 + 2 + c % 2];
      of_low = dot(add ? of_low : 0.0F, low, column);
      of_high = dot(add ? of_high : 0.0F, high, column);
    }
  }
};

}  // namespace

void wgmma_shared(Element element, int columns, float* d, std::uint64_t a, std::uint64_t b,
                  bool add) {
  product_of_thread([product = RowsProduct{element, columns, d, b, add}, a] {
    const int row = static_cast<int>(threadIdx.x % 128 / 32 * 16 + own_lane() / 4);
    float low[16];
    float high[16];
    swizzled_row(product.element, a, row, low);
    swizzled_row(product.element, a, row + 8, high);
    product.multiply(low, high);
  });
}

void wgmma_registers(Element element, int columns, float* d, const std::uint32_t* a,
                     std::uint64_t b, bool add) {
  const Brought* const all = meet_in_warp({{a[0], a[1], a[2], a[3]}});
  struct Rows {
    float low[16], high[16];
  } rows;
  for (unsigned quarter = 0; quarter < 4; ++quarter) {
    const std::uint32_t* const words = all[own_lane() / 4 * 4 + quarter].words;
    for (unsigned half = 0; half < 2; ++half) {
      const Pair low = numbers(element, words[2 * half]);
      const Pair high = numbers(element, words[2 * half + 1]);
      rows.low[8 * half + 2 * quarter] = low.low;
      rows.low[8 * half + 2 * quarter + 1] = low.high;
      rows.high[8 * half + 2 * quarter] = high.low;
      rows.high[8 * half + 2 * quarter + 1] = high.high;
    }
  }
  product_of_thread([product = RowsProduct{element, columns, d, b, add}, rows] {
    product.multiply(rows.low, rows.high);
  });
}

void copy_async(std::uint32_t to, const void* from, int bytes, int there) {
  if (to % static_cast<unsigned>(bytes) != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes) != 0) {
    trap("cp.async: an address that is no multiple of its bytes");
  }
  copy_of_thread([at = static_cast<std::byte*>(from_shared(to)), from, bytes, there] {
    std::memset(at, 0, static_cast<std::size_t>(bytes));
    std::memcpy(at, from, static_cast<std::size_t>(std::clamp(there, 0, bytes)));
  });
}

void await_all_copies() {
  close_copies();
  await_copies(0);
}

// Others wait for the barrier, so the copies may not be late any more.
void arrive_with_copies(std::uint32_t barrier) {
  await_all_copies();
  arrive(barrier, 0);
}

namespace {

// What a barrier's 8 bytes hold.
struct PhaseBarrier {
  std::uint16_t arrivals, to_come;  // of a phase, and of this one still
  std::int32_t bytes_and_parity;    // bytes to come, and the parity of this phase below
};
static_assert(sizeof(PhaseBarrier) == 8);

PhaseBarrier& barrier_at(std::uint32_t address) {
  if (address % 8 != 0) {
    trap("a barrier that does not begin on 8 bytes");
  }
  return *static_cast<PhaseBarrier*>(from_shared(address));
}

void end_if_all_came(PhaseBarrier& barrier) {
  if (barrier.to_come == 0 && barrier.bytes_and_parity >> 1 == 0) {
    barrier.to_come = barrier.arrivals;
    barrier.bytes_and_parity ^= 1;
  }
}

void count_bytes(std::uint32_t address, int bytes) {
  PhaseBarrier& barrier = barrier_at(address);
  barrier.bytes_and_parity += 2 * bytes;
  end_if_all_came(barrier);
}

}  // namespace

void begin_barrier(std::uint32_t address, int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  barrier_at(address) = {count, count, 0};
}

void expect(std::uint32_t address, int bytes_to_come) {
  barrier_at(address).bytes_and_parity += 2 * bytes_to_come;
}

void arrive(std::uint32_t address, int bytes_to_come) {
  PhaseBarrier& barrier = barrier_at(address);
  if (barrier.to_come == 0) {
    trap("mbarrier: more arrivals than its phase waits for");
  }
  barrier.bytes_and_parity += 2 * bytes_to_come;
  --barrier.to_come;
  end_if_all_came(barrier);
}

bool has_ended(std::uint32_t address, unsigned parity) {
  do_copies_for(address);
  return static_cast<unsigned>(barrier_at(address).bytes_and_parity & 1) != parity;
}

void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  if (to % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) {
    trap("cp.async.bulk: addresses and bytes are multiples of 16");
  }
  copy_for_barrier(barrier, [at = from_shared(to), from, bytes, barrier] {
    std::memcpy(at, from, static_cast<std::size_t>(bytes));
    count_bytes(barrier, -bytes);
  });
}

void send(std::uint32_t to, const float* values, int count, std::uint32_t barrier) {
  if (to >> kBlockBits != barrier >> kBlockBits) {
    trap("st.async: data and barrier in two blocks");
  }
  copy_for_barrier(
      barrier, [at = from_shared(to), sent = std::vector<float>(values, values + count), barrier] {
        std::memcpy(at, sent.data(), sent.size() * sizeof(float));
        count_bytes(barrier, -static_cast<int>(sent.size() * sizeof(float)));
      });
}

std::uint32_t in_block(std::uint32_t address, unsigned rank) {
  return rank << kBlockBits | (address & ((1U << kBlockBits) - 1));
}

}  // namespace lora_bench::emulated
