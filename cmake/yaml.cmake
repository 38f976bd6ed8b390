# lora_bench_yaml: yaml-cpp, linked statically wherever the archive is there, so that the binary runs
# on machines without it. Before 0.8 the target was plain `yaml-cpp`.
function(lora_bench_find_yaml)
  find_package(yaml-cpp QUIET)
  add_library(lora_bench_yaml INTERFACE)
  set(version "${yaml-cpp_VERSION}")
  if(TARGET yaml-cpp::yaml-cpp)
    set(target yaml-cpp::yaml-cpp)
  elseif(TARGET yaml-cpp)
    set(target yaml-cpp)
  else()
    set(version 0.8.0)
    set(target yaml-cpp)
    set(repository https://github.com/jbeder/yaml-cpp.git)
    lora_bench_fetching(yaml-cpp ${version} ${repository})
    set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
    set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
    foreach(option YAML_CPP_BUILD_TESTS YAML_CPP_BUILD_TOOLS YAML_CPP_BUILD_CONTRIB YAML_CPP_INSTALL
        YAML_CPP_FORMAT_SOURCE YAML_BUILD_SHARED_LIBS BUILD_TESTING)
      set(${option} OFF)
    endforeach()
    FetchContent_Declare(yaml-cpp GIT_REPOSITORY ${repository}
      GIT_TAG f7320141120f720aecc4c32be25586e7da9eb978)
    FetchContent_MakeAvailable(yaml-cpp)
    # Not SYSTEM in the declaration: CMake 3.25 hands that word on to git.
    set_target_properties(yaml-cpp PROPERTIES SYSTEM ON)
    # 0.8.0 relies on <cstdint> coming in by another header; GCC 15's do not bring it.
    target_compile_options(yaml-cpp PRIVATE -include cstdint)
  endif()

  find_library(LORA_BENCH_YAML_ARCHIVE libyaml-cpp.a)
  mark_as_advanced(LORA_BENCH_YAML_ARCHIVE)
  get_target_property(imported ${target} IMPORTED)
  if(imported AND LORA_BENCH_YAML_ARCHIVE)
    target_include_directories(lora_bench_yaml SYSTEM INTERFACE
      $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(lora_bench_yaml INTERFACE ${LORA_BENCH_YAML_ARCHIVE})
  else()
    target_link_libraries(lora_bench_yaml INTERFACE ${target})
  endif()
  lora_bench_record(yaml-cpp "${version}")
  set(LORA_BENCH_DEPENDENCIES "${LORA_BENCH_DEPENDENCIES}" PARENT_SCOPE)
endfunction()
lora_bench_find_yaml()
