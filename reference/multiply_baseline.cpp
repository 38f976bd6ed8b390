#define LORA_BENCH_ISA baseline
#include "reference/multiply_body.h"
