/* Allocations that fail on demand, for a file that is compiled with this header before it; see overlay.go. The
 * definitions are weak: each file has them, and a program or shared library one of each. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* How many allocations are yet to succeed before one fails, from 1; 0: none fails. */
__attribute__((weak)) int64_t callocfail_left;
__attribute__((weak)) int64_t callocfail_always; /* 1: all after that one fail, too */
__attribute__((weak)) int64_t callocfail_failed; /* how many have failed since the last callocfail_arm */
__attribute__((weak)) int64_t callocfail_live;   /* blocks of memory that are not freed */
__attribute__((weak)) int64_t callocfail_files;  /* files that were compiled so */

__attribute__((weak)) void callocfail_arm(int64_t n, int64_t always) {
  __atomic_store_n(&callocfail_always, always, __ATOMIC_SEQ_CST);
  __atomic_store_n(&callocfail_failed, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n(&callocfail_left, n, __ATOMIC_SEQ_CST);
}

__attribute__((weak)) int64_t callocfail_disarm(void) {
  __atomic_store_n(&callocfail_left, 0, __ATOMIC_SEQ_CST);
  return __atomic_load_n(&callocfail_failed, __ATOMIC_SEQ_CST);
}

/* Reports whether the allocation that is asked for fails. */
__attribute__((weak)) int callocfail_fails(void) {
  int64_t left = __atomic_load_n(&callocfail_left, __ATOMIC_SEQ_CST), next;
  do {
    if (left == 0) return 0;
    next = left > 1 ? left - 1 : __atomic_load_n(&callocfail_always, __ATOMIC_SEQ_CST);
  } while (!__atomic_compare_exchange_n(&callocfail_left, &left, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  if (left == 1) __atomic_fetch_add(&callocfail_failed, 1, __ATOMIC_SEQ_CST);
  return left == 1;
}

__attribute__((weak)) void* callocfail_counted(void* block) {
  if (block != NULL) __atomic_fetch_add(&callocfail_live, 1, __ATOMIC_SEQ_CST);
  return block;
}

__attribute__((weak)) void* callocfail_malloc(size_t size) {
  return callocfail_fails() ? NULL : callocfail_counted(malloc(size));
}

__attribute__((weak)) void* callocfail_calloc(size_t n, size_t size) {
  return callocfail_fails() ? NULL : callocfail_counted(calloc(n, size));
}

__attribute__((weak)) void* callocfail_realloc(void* block, size_t size) {
  if (callocfail_fails()) return NULL;
  void* grown = realloc(block, size);
  return block == NULL ? callocfail_counted(grown) : grown;
}

__attribute__((weak)) void callocfail_free(void* block) {
  if (block != NULL) __atomic_fetch_sub(&callocfail_live, 1, __ATOMIC_SEQ_CST);
  free(block);
}

#ifdef __linux__
__attribute__((weak)) void* callocfail_mmap(void* at, size_t size, int access, int flags, int file, off_t offset) {
  return callocfail_fails() ? MAP_FAILED : mmap(at, size, access, flags, file, offset);
}
#endif

#ifdef CALLOCFAIL
__attribute__((constructor)) static void callocfail_count_file(void) { callocfail_files++; }
#endif

#ifdef CALLOCFAIL_C
#define malloc callocfail_malloc
#define calloc callocfail_calloc
#define realloc callocfail_realloc
#define free callocfail_free
#define mmap callocfail_mmap
#endif
