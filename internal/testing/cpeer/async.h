/* The other side of the asynchronous interface, for tests: a consumer and a producer with
 * configurable callbacks that record the calls that they receive. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"
#include "cpeer.h"

/* The calls that a consumer received, in order. */
enum { CPEER_ON_SCHEMA = 1, CPEER_ON_NEXT_TASK, CPEER_ON_END, CPEER_ON_ERROR, CPEER_RELEASE };

/* No test makes more tasks. */
#define CPEER_MANY 4096

/* A consumer. The fields before the log are set before the handler is passed on. */
struct cpeer_consumer {
  struct ArrowAsyncDeviceStreamHandler handler; /* private_data is the consumer */

  int64_t schema_requests, schema_n; /* on_schema calls request(n) so many times */
  int64_t task_requests, task_n;     /* each on_next_task, too */
  int schema_code;                   /* the result of on_schema */
  int task_code;                     /* the result of on_next_task for task number fail_at */
  int64_t fail_at;                   /* counted from 0; the end is the task after the last */
  int64_t cancel_at;                 /* -1 on_schema, or a task's number; -2 never */
  int extract_at_once;               /* 1: on_next_task extracts with NULL */
  int leave_schema;                  /* 1: on_schema does not take the schema */

  void* lock; /* of all below, with a condition */
  int64_t n_events;
  int8_t events[CPEER_MANY];
  int64_t in_handler, overlaps; /* callbacks that came while another was running */
  int64_t reentrant;            /* callbacks from inside request or cancel, on the same thread */
  int metadata_changed;         /* 1: release did not find the metadata of on_schema */
  int64_t n_tasks;
  struct ArrowAsyncTask tasks[CPEER_MANY];
  int released;
  int error_code;
  char error_message[1 << 17];
  int error_has_metadata;
  int32_t device_type;
  struct ArrowSchema schema;
  char metadata[512], task_metadata[512]; /* copies, as the C data interface has it */
  int64_t metadata_size, task_metadata_size;
};

struct cpeer_consumer* cpeer_consumer_new(void);
void cpeer_consumer_free(struct cpeer_consumer* c);
/* Wait until so many tasks were there, or an event and no call is running, or the handler was released. Return 0, or an
 * errno after a minute. */
int cpeer_wait_tasks(struct cpeer_consumer* c, int64_t n);
int cpeer_wait_released(struct cpeer_consumer* c);
int cpeer_wait_event(struct cpeer_consumer* c, int event);
/* Call the producer, on this thread or on so many others at once, which cancel if n is 0. */
void cpeer_request(struct ArrowAsyncProducer* p, int64_t n);
void cpeer_cancel(struct ArrowAsyncProducer* p);
int cpeer_request_on_threads(struct ArrowAsyncProducer* p, int64_t n, int threads);
/* Calls request, then cancel, of n producers, on each of so many threads at once. */
int cpeer_call_all_on_threads(struct ArrowAsyncProducer** all, int64_t n, int threads);
/* Threads that keep a core busy, until they are ended. */
void* cpeer_load_begin(int threads);
void cpeer_load_end(void* load);
int cpeer_extract(const struct ArrowAsyncTask* task, struct ArrowDeviceArray* out);

/* The action of a producer's request and cancel besides counting. */
enum { CPEER_NOTHING, CPEER_SEND_RELEASE, CPEER_SEND_ERROR, CPEER_WAIT };

/* A producer, whose callbacks the test calls. */
struct cpeer_producer {
  struct ArrowAsyncProducer producer; /* private_data is the producer */
  struct ArrowAsyncDeviceStreamHandler* handler;
  const struct cpeer_node* tree; /* the data of the tasks */
  int in_request;                /* the above */

  void* lock;
  int64_t requests, requested, last_n, cancels;
  int64_t late; /* calls of request or cancel after release, and requests after cancel */
  int64_t calls, overlaps;
  int64_t forbidden;                 /* calls from inside on_error and release, on the same thread */
  int64_t extracted, dropped, twice; /* of tasks: with data, with NULL, again */
  int64_t arrays;                    /* that are not released */
  int waiting, let;                  /* for CPEER_WAIT, and tasks that wait */
  int released;
};

/* How one task goes. */
struct cpeer_task {
  struct cpeer_producer* p;
  int code;            /* the result of extract_data if its output is not NULL */
  int32_t device_type; /* of the array */
  int no_array;        /* 1: extract_data returns 0 and a released array */
  int wait;            /* 1: extract_data waits for cpeer_let */
  int extracted;
};

struct cpeer_producer* cpeer_producer_new(struct ArrowAsyncDeviceStreamHandler* handler);
void cpeer_producer_free(struct cpeer_producer* p);
/* The handler's callbacks, each called on a thread that was never seen before. */
int cpeer_send_schema(struct cpeer_producer* p, struct ArrowSchema* schema);
int cpeer_send_task(struct cpeer_producer* p, struct cpeer_task* task, const char* metadata);
/* Sends n tasks, each on a thread of its own, all at once; 64 at most. Returns how many were refused. */
int64_t cpeer_send_tasks_at_once(struct cpeer_producer* p, struct cpeer_task** tasks, int64_t n);
int cpeer_send_bare_task(struct cpeer_producer* p);
int cpeer_send_end(struct cpeer_producer* p);
int cpeer_send_error(struct cpeer_producer* p, int code, const char* message, const char* metadata);
int cpeer_send_release(struct cpeer_producer* p);
/* A copy of the producer, of one moment. */
struct cpeer_producer cpeer_producer_now(struct cpeer_producer* p);
int cpeer_wait_requested(struct cpeer_producer* p, int64_t n);
int cpeer_wait_cancelled(struct cpeer_producer* p);
int cpeer_wait_waiting(struct cpeer_producer* p);
int cpeer_wait_returned(struct cpeer_producer* p);
void cpeer_let(struct cpeer_producer* p);
