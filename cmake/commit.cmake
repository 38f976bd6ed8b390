# Run at build time: writes commit.h, and touches it only when it changes.
set(commit unknown)
set(dirty false)

# The folder may belong to another user (a container, a mounted tree).
set(git ${GIT} -c safe.directory=* -C ${SOURCE})
if(GIT)
  execute_process(COMMAND ${git} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # A tarball unpacked inside another repository must not be named after that one.
  if(top)
    file(REAL_PATH "${top}" top)
    file(REAL_PATH "${SOURCE}" SOURCE)
  endif()
  if("${top}" STREQUAL "${SOURCE}")
    execute_process(COMMAND ${git} rev-parse --short=12 HEAD
      OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${git} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(head)
      set(commit ${head})
    endif()
    if(changes)
      set(dirty true)
    endif()
  endif()
endif()
# A tree without git (a tarball, a copy) is named by whoever copied it.
if(commit STREQUAL "unknown" AND DEFINED ENV{LORA_BENCH_COMMIT})
  set(commit $ENV{LORA_BENCH_COMMIT})
endif()

set(text "#pragma once\n\n#define LORA_BENCH_COMMIT \"${commit}\"\n#define LORA_BENCH_DIRTY ${dirty}\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
