# Decides LORA_BENCH_HAVE_CUDA and the architectures.

# That of the GPU here, "" where there is none. Named, never `native`: that configures silently to
# nothing on a machine without a GPU.
function(lora_bench_own_architecture out)
  set(${out} "" PARENT_SCOPE)
  find_program(NVIDIA_SMI nvidia-smi)
  mark_as_advanced(NVIDIA_SMI)
  if(NOT NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE result TIMEOUT 20)
  if(NOT result EQUAL 0 OR NOT capabilities MATCHES "([0-9]+)\\.([0-9]+)")
    return()
  endif()
  set(architecture ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
  if(architecture STREQUAL "90")
    set(architecture 90a)
  endif()
  set(${out} ${architecture} PARENT_SCOPE)
endfunction()

set(LORA_BENCH_HAVE_CUDA OFF)
if(LORA_BENCH_CUDA STREQUAL "OFF" OR LORA_BENCH_ASAN OR LORA_BENCH_TSAN OR LORA_BENCH_FUZZ)
  return()
endif()

if(LORA_BENCH_RELEASE_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 89 90a 100)
elseif(NOT CMAKE_CUDA_ARCHITECTURES)
  lora_bench_own_architecture(architecture)
  if(NOT architecture)
    set(architecture 90a)
    set(LORA_BENCH_ASSUMED_ARCHITECTURE ON CACHE INTERNAL "no GPU was here to ask")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architecture} CACHE STRING "CUDA architectures")
endif()

# The toolkit's installer leaves nvcc off the PATH.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LORA_BENCH_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LORA_BENCH_NVCC)
  if(LORA_BENCH_NVCC)
    set(ENV{CUDACXX} ${LORA_BENCH_NVCC})
  endif()
endif()

include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # CMake 3.25 does not know that nvcc has had C++20 since 12.0.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(LORA_BENCH_HAVE_CUDA ON)
  if(LORA_BENCH_ASSUMED_ARCHITECTURE AND CMAKE_CUDA_ARCHITECTURES STREQUAL "90a")
    message(STATUS "CUDA code for sm_90a alone (H100, H200), as there was no GPU here to ask; for others "
      "-DCMAKE_CUDA_ARCHITECTURES=89, or -DLORA_BENCH_RELEASE_ARCHITECTURES=ON")
  else()
    message(STATUS "CUDA code for ${CMAKE_CUDA_ARCHITECTURES}")
  endif()
elseif(LORA_BENCH_CUDA STREQUAL "ON")
  message(FATAL_ERROR "LORA_BENCH_CUDA=ON, but no CUDA compiler works here; "
    "set CUDACXX to nvcc, or see CMakeFiles/CMakeError.log in the build folder")
else()
  message(STATUS "No CUDA compiler: building without the CUDA backends")
endif()
