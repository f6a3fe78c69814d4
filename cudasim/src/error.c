/* Names and descriptions of errors. */
#include "sim.h"

static const struct {
  CUresult error;
  const char *name, *text;
} errors[] = {
#define ERROR(name, value, text) {name, #name, text},
#include "errors.h"
};

static CUresult find(CUresult error, const char **out, bool name) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors && !*out; i++)
    if (errors[i].error == error) *out = name ? errors[i].name : errors[i].text;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) { return find(error, name, true); }
CUresult cuGetErrorString(CUresult error, const char **text) { return find(error, text, false); }
