# Writes version.cpp at build time, since the revision may change between two builds without a new configure.
# Run with -DVERSION=..., -DSOURCE_DIR=root of the repository, -DTEMPLATE=version.cpp.in, -DOUTPUT=version.cpp.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=40 --exclude=*
  OUTPUT_VARIABLE REVISION OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(REVISION unknown)
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)  # leaves an unchanged file alone
