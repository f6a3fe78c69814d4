/* Modules: there are none, but programs ask how they are loaded. */
#include "rules.h"

RULE(modules_are_loaded_lazily_since_12_2, "") {
  int mode = 0;
  IS(cuModuleGetLoadingMode(&mode), CUDA_ERROR_NOT_INITIALIZED);
  OK(cuInit(0));
  IS(cuModuleGetLoadingMode(NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 2);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 1);
}

RULE(modules_are_loaded_eagerly_before_12_2, "version=12010") {
  int mode = 0;
  OK(cuInit(0));
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 1);
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 2);
}
