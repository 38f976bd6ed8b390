# Compiles every header by itself, so that none leans on what another included before it.
function(lora_bench_headers_alone)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/src/*/*.h ${PROJECT_SOURCE_DIR}/reference/*.h)
  if(LORA_BENCH_HAVE_CUDA)
    file(GLOB kernel_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
      ${PROJECT_SOURCE_DIR}/kernels/*.h ${PROJECT_SOURCE_DIR}/kernels/*/*.h)
    list(APPEND headers ${kernel_headers})
  endif()
  set(sources "")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "[/.]" "_" stem ${header})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers_alone/${stem}.cpp)
    string(REGEX REPLACE "^src/" "" header ${header})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(headers_alone OBJECT ${sources})
  target_include_directories(headers_alone PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(headers_alone PRIVATE -O0)
  target_link_libraries(headers_alone PRIVATE lora_bench_warnings lora_bench_yaml
    fmt::fmt-header-only nlohmann_json::nlohmann_json CLI11::CLI11 Eigen3::Eigen)
  if(LORA_BENCH_HAVE_CUDA)
    target_link_libraries(headers_alone PRIVATE CUDA::cudart_static)
    target_compile_definitions(headers_alone PRIVATE LORA_BENCH_HAVE_CUDA=1)
  endif()
endfunction()
