add_library(lora_bench_warnings INTERFACE)
# nvcc's generated host code is neither pedantic nor free of old-style casts.
target_compile_options(lora_bench_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)
# g++ 12 takes inlined string concatenations for overlapping copies (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lora_bench_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(LORA_BENCH_WERROR)
  target_compile_options(lora_bench_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  # These judge code after inlining; g++ 13 and fmt 9 (Ubuntu 24.04) have them inside fmt.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(lora_bench_warnings INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds -Wno-error=stringop-overflow>)
  endif()
endif()
