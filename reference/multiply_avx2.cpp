#if defined(__x86_64__)
#define LORA_BENCH_ISA avx2
#define Eigen eigen_avx2
#include "reference/multiply_body.h"
#endif
