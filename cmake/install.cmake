# What `cmake --install` and `cpack` lay down. The binary finds its scenarios by ../share.
include(GNUInstallDirs)
if(LORA_BENCH_PROGRAM)
  install(PROGRAMS ${LORA_BENCH_PROGRAM} DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME lora-bench)
else()
  install(TARGETS lora-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES include/lora_bench_backend.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY scenarios DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-bench
  FILES_MATCHING PATTERN "*.yaml" PATTERN "*.csv")
install(DIRECTORY python/lora_bench DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-bench/python
  FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")
install(FILES include/lora_bench_backend.h
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-bench/python/lora_bench)
# Of a wheel (pyproject.toml): the module for `import lora_bench`, and the examples.
if(SKBUILD)
  install(DIRECTORY python/lora_bench DESTINATION ${SKBUILD_PLATLIB_DIR} COMPONENT wheel EXCLUDE_FROM_ALL
    FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")
  install(FILES include/lora_bench_backend.h DESTINATION ${SKBUILD_PLATLIB_DIR}/lora_bench
    COMPONENT wheel EXCLUDE_FROM_ALL)
  install(DIRECTORY examples include DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT wheel EXCLUDE_FROM_ALL
    FILES_MATCHING PATTERN "Makefile" PATTERN "mine.*" PATTERN "*.py" PATTERN "*.h")
endif()
install(DIRECTORY tunings DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-bench
  FILES_MATCHING PATTERN "*.yaml")

# In the folders of the repository, so that links lead on and the example finds its header. By name
# or pattern: what people made beside them stays where it is.
function(lora_bench_install_documents)
  foreach(file IN LISTS ARGN)
    cmake_path(GET file PARENT_PATH folder)
    set(kind FILES)
    file(READ ${file} start LIMIT 2)
    if(start MATCHES "^#!")
      set(kind PROGRAMS)  # they run where they lie
    endif()
    install(${kind} ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} COMPONENT documents)
  endforeach()
endfunction()
lora_bench_install_documents(README.md CHANGELOG.md CONTRIBUTING.md LICENSE
  examples/ci/release.yml examples/plugin/Makefile examples/plugin/mine.cpp examples/plugin/mine.cu
  examples/python/numpy_eight_bits.py examples/python/numpy_experts.py
  examples/python/numpy_linear.py
  examples/python/numpy_metadata.py examples/python/numpy_quantise.py
  examples/python/triton_linear.py
  include/lora_bench_backend.h kernels/clustered/README.md kernels/clustered/tried.md
  kernels/continued/README.md kernels/panel/README.md kernels/panel/tried.md
  kernels/streamed/README.md scenarios/README.md
  scripts/check_export.py scripts/eight_bits_error.py scripts/produce_output.py
  scripts/plot.py scripts/requirements.txt)
file(GLOB modules CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/scripts/plotting/*.py)
lora_bench_install_documents(${modules})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents
  FILES_MATCHING PATTERN "*.md"
  PATTERN "results/*/*.txt" PATTERN "results/*/*.jsonl" PATTERN "pictures/*.svg")

# lora_bench_document(<file> <folder below share> <arguments of lora-bench that print it>)
set(LORA_BENCH_DOCUMENTS "")
function(lora_bench_document file folder)
  set(out ${PROJECT_BINARY_DIR}/documents/${file})
  add_custom_command(OUTPUT ${out} COMMAND lora-bench ${ARGN} > ${out} DEPENDS lora-bench VERBATIM)
  install(FILES ${out} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
  set(LORA_BENCH_DOCUMENTS ${LORA_BENCH_DOCUMENTS} ${out} PARENT_SCOPE)
endfunction()

# They are printed by the binary itself, which only runs where it was built for.
if(NOT CMAKE_CROSSCOMPILING)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/documents)
  lora_bench_document(lora-bench bash-completion/completions completion bash)
  lora_bench_document(_lora-bench zsh/site-functions completion zsh)
  lora_bench_document(lora-bench.fish fish/vendor_completions.d completion fish)
  lora_bench_document(lora-bench.1 man/man1 man)
  add_custom_target(documents ALL DEPENDS ${LORA_BENCH_DOCUMENTS})
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lora-bench)
set(CPACK_PACKAGE_CONTACT "lora-bench maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Proves and times multi-LoRA kernels")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
find_program(LORA_BENCH_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(LORA_BENCH_SHLIBDEPS)
if(LORA_BENCH_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
else()
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libc6)
endif()
include(CPack)
