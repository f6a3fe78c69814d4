/* A producer and a consumer written in C, for tests: another implementation of the
 * interface. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"

/* Release callbacks that count: private_data points to an int64_t. */
void cpeer_count_array_release(struct ArrowArray* array);
void cpeer_count_schema_release(struct ArrowSchema* schema);

/* Calls run(argument) on a thread that Go has never seen, and waits for it. Returns 0, or an errno. */
int cpeer_on_thread(void* (*run)(void*), void* argument);

/* Call the release callback from a thread that Go has never seen. Returns 0, or
 * the error of pthread_create. */
int cpeer_release_array_on_thread(struct ArrowArray* array);

/* Call the release callback, and once more although the struct is released then. */
void cpeer_release_array_twice(struct ArrowArray* array);
void cpeer_release_schema_twice(struct ArrowSchema* schema);

/* Calls f(a, b) on a thread that Go has never seen, and writes its result to *result. Returns 0, or
 * the error of pthread_create. */
int cpeer_call_on_thread(int (*f)(void*, void*), void* a, void* b, int* result);

/* Calls f(a) and returns the pointer that it returns. */
const void* cpeer_call_for_pointer(const void* (*f)(void*), void* a);

/* Takes an array of one pointer, and does nothing with it. */
void cpeer_look_at(const void** pointer);

/* The array model of a C program, which the floor exports from. */
struct cpeer_node {
  int64_t length;
  int64_t null_count;
  int64_t n_buffers;
  const void* buffers[4];
  int64_t n_children;
  const struct cpeer_node* children; /* siblings, one after the other */
};

/* Exports a tree with one malloc. Returns 0 or ENOMEM. */
int cpeer_floor_export(const struct cpeer_node* root, struct ArrowDeviceArray* out);
