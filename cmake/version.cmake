# src/core/version.cpp from what configuring knows, and commit.h from what git says at every build:
# a commit made after configuring is named rightly.
function(lora_bench_version target)
  set(build_type ${CMAKE_BUILD_TYPE})
  set(cuda_compiler none)
  set(cuda_architectures "")
  if(LORA_BENCH_HAVE_CUDA)
    set(cuda_compiler "${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " cuda_architectures)
  endif()
  list(JOIN LORA_BENCH_DEPENDENCIES ", " dependencies)
  set(folder ${PROJECT_BINARY_DIR}/version)
  configure_file(${PROJECT_SOURCE_DIR}/src/core/version.cpp.in ${folder}/version.cpp @ONLY)

  find_package(Git QUIET)
  add_custom_target(lora_bench_commit
    COMMAND ${CMAKE_COMMAND} "-DGIT=${GIT_EXECUTABLE}" "-DSOURCE=${PROJECT_SOURCE_DIR}"
      "-DOUT=${folder}/commit.h" -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
    BYPRODUCTS ${folder}/commit.h
    COMMENT "Asking git for the commit")
  target_sources(${target} PRIVATE ${folder}/version.cpp)
  target_include_directories(${target} PRIVATE ${folder})
  add_dependencies(${target} lora_bench_commit)
endfunction()
