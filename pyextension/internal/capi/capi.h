/* What a Go library offers to the Python package arrowdevice, version 1. The Python side declares the
 * same in python/arrowdevice/_library.py; package pyextension has the meaning of requests and replies.
 *
 * Every function may be called from any thread, without Python's lock (GIL) unless it says otherwise. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Starts a call and waits for it, at most wait_ns nanoseconds. Returns 0 when it has ended: *reply is
 * malloc'ed memory of *reply_size bytes, the caller's. Otherwise returns the number of the call, which
 * is positive, with NULL in *reply and the number in *reply_size: Python reads it there, since an
 * exception of a signal handler can come between the return and the assignment of a result. C structs
 * that the request names are moved out before it returns, in every case. Returns -1 in a forked child,
 * where nothing happens. */
int64_t arrowdevice_v1_call(const uint8_t* request, uint64_t size, int64_t wait_ns, uint8_t** reply,
                            uint64_t* reply_size);
/* Waits for a call in progress. The result is that of arrowdevice_v1_call; wait_ns < 0 is no limit. */
int64_t arrowdevice_v1_wait(int64_t call, int64_t wait_ns, uint8_t** reply, uint64_t* reply_size);
/* Ends the context of a call, and its number. What it still returns is released. Does not wait. */
void arrowdevice_v1_cancel(int64_t call);
/* Writes the number of the call to fd, 8 bytes, once it has ended; not after arrowdevice_v1_cancel. */
void arrowdevice_v1_notify(int64_t call, int32_t fd);
/* Drops an object. */
void arrowdevice_v1_release(uint64_t handle);
/* Frees a reply, or a struct that no capsule owns. */
void arrowdevice_v1_free(void* memory);

/* What follows is called with the GIL. An exception of a signal handler comes before or after a C function,
 * never inside it: what one of these does is done as a whole. */

/* Makes capsules of the structs in the reply to an export, which they release and free, frees the reply, and sets
 * *reply to NULL. second is NULL for one capsule. Returns a tuple; NULL with an exception if there is no memory, when
 * the structs are released. The reply must not be an error. */
void* arrowdevice_v1_take_capsules(uint8_t** reply, uint64_t* reply_size, const char* first, const char* second);
/* A capsule that drops an object when it is destroyed. */
void* arrowdevice_v1_own(uint64_t handle);

/* A source in Python that Go reads as a stream. The memory is Python's, and lives until the method release ends. */
struct arrowdevice_source {
  void* object;     /* the Python object, with methods fill_schema, fill_next and release */
  void* filled;     /* written last by fill_schema and fill_next: the struct, whose contents are moved on */
  const char* text; /* written by them before code, if they fail */
  uint64_t main;    /* the thread that runs signal handlers, as pthread_self has it */
  int32_t code;     /* written last by them if they fail: an errno */
};
/* Makes an ArrowDeviceArrayStream of a source, whose device_type is written already. */
void arrowdevice_v1_open_source(void* stream, struct arrowdevice_source* source);

/* The rest is between Go and C. */

/* Moves a C struct into malloc'ed memory. release_at is the offset of its release callback. Returns NULL
 * with *consumed set if the callback is NULL, and NULL without it if there is no memory. */
void* arrowdevice_move(void* from, size_t size, size_t release_at, int* consumed);
/* Puts callbacks around those of a stream that was exported by Go: they give the GIL up while Go runs, if the
 * calling thread holds it, so that Go code on other threads may run Python. token is given to
 * arrowdevice_go_stream_released once. Returns 0, or ENOMEM with the stream as it was. */
int arrowdevice_unlock_stream(void* array_stream, uint64_t token);
int arrowdevice_unlock_device_stream(void* device_array_stream, uint64_t token);
/* Drops a reference to a Python object, with the GIL. While Python is finalizing it does nothing. */
void arrowdevice_drop_python_object(void* object);
/* Names the main thread of Python, as pthread_self does: the one that runs signal handlers. */
void arrowdevice_set_main_thread(uint64_t thread);
int arrowdevice_on_main_thread(void);
/* Runs the handlers of signals that have arrived, on the main thread. Reports whether one raised an exception, which is
 * raised where that thread runs Python code next. */
int arrowdevice_run_signal_handlers(void);
/* Reports whether Python is being finalized: its functions must not be called from other threads then. */
int arrowdevice_python_is_finalizing(void);

/* Reports the release of a stream to Go. */
void arrowdevice_stream_released(uint64_t token);

/* Implemented in Go. */
int64_t arrowdevice_go_call(uint8_t* request, uint64_t size, int64_t wait_ns, uint8_t** reply, uint64_t* reply_size);
int64_t arrowdevice_go_wait(int64_t call, int64_t wait_ns, uint8_t** reply, uint64_t* reply_size);
void arrowdevice_go_cancel(int64_t call);
void arrowdevice_go_notify(int64_t call, int32_t fd);
void arrowdevice_go_release(uint64_t handle);
void arrowdevice_go_stream_released(uint64_t token);
