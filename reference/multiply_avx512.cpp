#if defined(__x86_64__)
#define LORA_BENCH_ISA avx512
#define Eigen eigen_avx512
#include "reference/multiply_body.h"
#endif
