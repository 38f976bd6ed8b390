#include "cli/invocation.h"

int main(int argc, char** argv) { return lora_bench::run_application(argc, argv); }
