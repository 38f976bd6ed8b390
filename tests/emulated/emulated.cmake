# GPU kernels on the CPU: translate.py makes C++ of them, machine.* runs their threads, runtime.cpp stands in for CUDA's
# runtime. The rest of the program is what a GPU has.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_FOUND OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(STATUS "No Python, or no x86-64: kernels are not tested without a GPU")
  return()
endif()

set(translated ${CMAKE_CURRENT_BINARY_DIR}/emulated)
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/kernels/*.cu ${PROJECT_SOURCE_DIR}/kernels/*.cuh ${PROJECT_SOURCE_DIR}/kernels/*.h)
list(FILTER kernels EXCLUDE REGEX "^kernels/measure/.*[.]cu$")  # probes.cpp has them
set(made ${kernels})
list(TRANSFORM made REPLACE "[.]cu$" ".cpp")
list(TRANSFORM made PREPEND ${translated}/)
set(read ${kernels})
list(TRANSFORM read PREPEND ${PROJECT_SOURCE_DIR}/)
add_custom_command(OUTPUT ${made}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/translate.py
    ${PROJECT_SOURCE_DIR}/kernels ${translated}
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/translate.py ${read} VERBATIM)
list(FILTER made INCLUDE REGEX "[.]cpp$")

add_library(lora_bench_translated OBJECT ${made})
set_target_properties(lora_bench_translated PROPERTIES UNITY_BUILD OFF)  # families name things alike
target_include_directories(lora_bench_translated PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/include ${CMAKE_CURRENT_LIST_DIR}/.. ${translated} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(lora_bench_translated PRIVATE cxx_std_20)
target_compile_definitions(lora_bench_translated PRIVATE LORA_BENCH_HAVE_SM90A=1)
# Their warnings are nvcc's affair; no product and sum become one here that are two elsewhere.
target_compile_options(lora_bench_translated PRIVATE -O1 -w -ffp-contract=off -include emulated/device.h)

set(stands_in fibers.cpp instructions.cpp machine.cpp probes.cpp runtime.cpp)
list(TRANSFORM stands_in PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
add_library(lora_bench_emulated OBJECT ${stands_in})
set_target_properties(lora_bench_emulated PROPERTIES UNITY_BUILD OFF)
target_include_directories(lora_bench_emulated PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/.. ${PROJECT_SOURCE_DIR})
target_include_directories(lora_bench_emulated SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(lora_bench_emulated PRIVATE cxx_std_20)
target_link_libraries(lora_bench_emulated PRIVATE lora_bench_warnings)

# Their objects come before the libraries, whose kernels and runtime nobody looks for then.
lora_bench_tests(emulated_tests emulated
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp ${CMAKE_CURRENT_LIST_DIR}/eight_bits_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/layers_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/plan_test.cpp ${CMAKE_CURRENT_LIST_DIR}/metadata_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/quantise_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/shards_test.cpp
    $<TARGET_OBJECTS:lora_bench_translated> $<TARGET_OBJECTS:lora_bench_emulated>
  LINKS lora_bench_cli PROPERTIES COST 150)
