/* Found in the program as Python's own are found in its library. */
#include "fakepython.h"

int fakepython_held, fakepython_finalizing;

__declspec(dllexport) int PyGILState_Ensure(void) { return ++fakepython_held; }
__declspec(dllexport) void PyGILState_Release(int state) { fakepython_held = state - 1; }
__declspec(dllexport) int Py_IsFinalizing(void) { return fakepython_finalizing; }
