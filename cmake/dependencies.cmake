# The system's package if it has one, else the source at a pinned commit: the versions of Debian 12
# (yaml-cpp: of Ubuntu 24.04, whose CMake files newer CMakes accept).
include(FetchContent)
find_package(Threads REQUIRED)

set(LORA_BENCH_DEPENDENCIES "")

function(lora_bench_record package version)
  list(APPEND LORA_BENCH_DEPENDENCIES "${package} ${version}")
  set(LORA_BENCH_DEPENDENCIES "${LORA_BENCH_DEPENDENCIES}" PARENT_SCOPE)
endfunction()

# Says what to do before FetchContent fails in thirty lines that do not.
function(lora_bench_fetching package version repository)
  string(TOLOWER ${package} folder)
  string(TOUPPER ${package} variable)
  set(variable FETCHCONTENT_SOURCE_DIR_${variable})
  if(${variable})
    message(STATUS "${package} is not installed: taking it from ${${variable}}")
    return()
  endif()
  message(STATUS "${package} is not installed: fetching ${version} from ${repository}")
  if(EXISTS ${FETCHCONTENT_BASE_DIR}/${folder}-src/.git)
    return()
  endif()
  find_package(Git QUIET)
  set(why "git is not installed")
  if(GIT_EXECUTABLE)
    execute_process(COMMAND ${GIT_EXECUTABLE} ls-remote --quiet ${repository} HEAD TIMEOUT 60
      OUTPUT_QUIET ERROR_VARIABLE why ERROR_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
    if(status EQUAL 0)
      return()
    endif()
  endif()
  message(FATAL_ERROR "${package} is neither installed nor to be had from ${repository}: ${why}\n"
    "Install it (on Debian and Ubuntu scripts/setup.sh does), or unpack its source and give\n"
    "  -D${variable}=FOLDER")
endfunction()

# A library of headers only. Its own CMake files are not run when it is fetched (SOURCE_SUBDIR names
# a folder without any): they would add tests, warnings and install rules that are not ours.
function(lora_bench_headers package version repository commit include_folder target)
  find_package(${package} QUIET)
  if(TARGET ${target})
    set(version "${${package}_VERSION}")
    # An imported target belongs to one folder; the rooms are others.
    set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL TRUE)
  else()
    lora_bench_fetching(${package} ${version} ${repository})
    FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${commit}
      SOURCE_SUBDIR headers-only)
    FetchContent_MakeAvailable(${package})
    FetchContent_GetProperties(${package} SOURCE_DIR folder)
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} INTERFACE ${folder}/${include_folder})
    set(${package}_fetched "${folder}" PARENT_SCOPE)
  endif()
  lora_bench_record(${package} "${version}")
  set(LORA_BENCH_DEPENDENCIES "${LORA_BENCH_DEPENDENCIES}" PARENT_SCOPE)
endfunction()

lora_bench_headers(CLI11 2.1.2 https://github.com/CLIUtils/CLI11.git
  70f8072f9dd2292fd0b9f9e5f58e279f60483ed3 include CLI11::CLI11)
lora_bench_headers(Eigen3 3.4.0 https://gitlab.com/libeigen/eigen.git
  3147391d946bb4b6c68edd901f2add6ac1f31f8c "" Eigen3::Eigen)
lora_bench_headers(fmt 9.1.0 https://github.com/fmtlib/fmt.git
  a33701196adfad74917046096bf5a2aa0ab0bb50 include fmt::fmt-header-only)
lora_bench_headers(nlohmann_json 3.11.2 https://github.com/nlohmann/json.git
  bc889afb4c5bf1c0d8ee29ef35eaaf4c8bef8a5d include nlohmann_json::nlohmann_json)
if(fmt_fetched)
  target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)
endif()
# Compiled fmt saves about three seconds a file; header-only fmt saves the binary a library that the
# machine it travels to may lack.
add_library(lora_bench_fmt INTERFACE)
if(TARGET fmt::fmt AND NOT LORA_BENCH_STATIC_RUNTIME)
  set_target_properties(fmt::fmt PROPERTIES IMPORTED_GLOBAL TRUE)
  target_link_libraries(lora_bench_fmt INTERFACE fmt::fmt)
else()
  target_link_libraries(lora_bench_fmt INTERFACE fmt::fmt-header-only)
endif()
include(yaml)

# Also defines doctest_discover_tests().
macro(lora_bench_test_dependencies)
  lora_bench_headers(doctest 2.4.9 https://github.com/doctest/doctest.git
    b7c21ec5ceeadb4951b00396fc1e4642dd347e5f "" doctest::doctest)
  if(doctest_fetched)
    include(${doctest_fetched}/scripts/cmake/doctest.cmake)
  else()
    include(${doctest_DIR}/doctest.cmake)
  endif()
endmacro()
