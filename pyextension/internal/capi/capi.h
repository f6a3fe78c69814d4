/* The C side of package pyextension. Python finds one function, PyInit_arrowdevice_v2 (module.c); the rest is between
 * Go and C, and between the files of this folder. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Where Go puts a reply: in first, or, if it is longer, in memory of malloc's, the caller's. */
struct arrowdevice_reply {
  uint8_t* data; /* &first before the call */
  uint64_t size; /* that of first, then that of the reply */
  uint8_t first[512];
};

/* Implemented in Go. They are called on any thread, without Python's lock (GIL), and not in a forked child. */

/* Starts the call that a request asks for, on a thread that is named as pthread_self does and may be Python's main one,
 * and waits for it, at most wait_ns nanoseconds. Returns 0 with a reply when it has ended, and else the number of the
 * call, which is positive. With ended, an object of Python, it does not wait: Go calls the object once the call has
 * ended, or drops it once the call is cancelled. C structs that the request names are moved out before it returns, in
 * every case. */
int64_t arrowdevice_go_call(uint8_t* request, uint64_t size, uint64_t thread, int main, int64_t wait_ns, void* ended,
                            struct arrowdevice_reply* reply);
/* Waits for a call in progress; wait_ns < 0 is no limit. Returns 0 with a reply, or the number of the call. */
int64_t arrowdevice_go_wait(int64_t call, int64_t wait_ns, struct arrowdevice_reply* reply);
/* Ends the context of a call, and its number. What it still returns is released. Does not wait. */
void arrowdevice_go_cancel(int64_t call);
/* Drops an object. */
void arrowdevice_go_release(uint64_t handle);
void arrowdevice_go_stream_released(uint64_t token);

/* The same, which do nothing in a forked child. */
int arrowdevice_forked(void);
void arrowdevice_cancel(uint64_t call);
void arrowdevice_release(uint64_t handle);
void arrowdevice_stream_released(uint64_t token);

/* A source in Python that Go reads, which Go owns. */
struct arrowdevice_source;
struct arrowdevice_item {
  uint8_t encoded[24]; /* an Arrow object, as in a request */
  uint64_t size;       /* of it; 0 is the end of the source */
  void* exception; /* why the source failed: an object of Python, Go's; NULL if C raises it, as it is that of a signal
                      handler */
  char* text;      /* of it, malloc'ed, or NULL */
  int32_t code;    /* an errno */
  int32_t failed;
};
/* Reads the next item. *thread is the calling thread meanwhile, and else 0. The capsules of an item are kept until the
 * next call: Go moves what is in them out before it. The first item may be a schema: that of a source without any. */
void arrowdevice_source_next(struct arrowdevice_source* source, uint64_t* thread, struct arrowdevice_item* out);
void arrowdevice_source_release(struct arrowdevice_source* source);
/* How many sources Go may still read, with the GIL. */
int arrowdevice_sources(void);

/* Puts callbacks around those of a stream that was exported by Go: they give the GIL up while Go runs, if the
 * calling thread holds it, so that Go code on other threads may run Python. token is given to
 * arrowdevice_go_stream_released once. Returns 0, or ENOMEM with the stream as it was. */
int arrowdevice_unlock_stream(void* array_stream, uint64_t token);
int arrowdevice_unlock_device_stream(void* device_array_stream, uint64_t token);

/* Drops a reference to a Python object, with the GIL. While Python is finalizing it does nothing. */
void arrowdevice_drop_python_object(void* object);
/* Calls Python objects, by their addresses, and drops the references to them. */
void arrowdevice_call_python_objects(const uintptr_t* objects, size_t count);
/* Names the main thread of Python, as pthread_self does: the one that runs signal handlers. */
void arrowdevice_set_main_thread(uint64_t thread);
int arrowdevice_on_main_thread(void);
uint64_t arrowdevice_this_thread(void);
/* Runs the handlers of signals that have arrived, on the main thread. Reports whether one raised an exception, which is
 * raised when that thread returns to Python. */
int arrowdevice_run_signal_handlers(void);
/* Gives the handlers of signals that other libraries have installed a stack of their own, as Go needs. */
void arrowdevice_keep_signal_stacks(void);
