/* The destructor of a PyCapsule with an ArrowArrayStream. It is C, and not a ctypes callback, because Python also
 * destroys capsules while an exception is propagating, when no Python code may run. */
#include <dlfcn.h>
#include <stdlib.h>

#include "../../internal/abi/abi.h"

void golib_destroy_stream_capsule(void* capsule) {
  void* (*get_pointer)(void*, const char*); /* of the Python that this process is: building takes no headers of it */
  *(void**)&get_pointer = dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
  struct ArrowArrayStream* stream = get_pointer(capsule, "arrow_array_stream");
  if (stream->release != NULL) stream->release(stream);
  free(stream);
}
