/* Asynchronous copies with pageable memory. */
#include "order.h"

/* The source is read in the call, but the data is under way afterwards. */
PAIR(an_upload_of_pageable_memory_is_pending, "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "pageable_async=*") {
  unsigned char *in = new_pageable(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 1);
}

PAIR(an_upload_of_pageable_memory_is_after_its_stream_only, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
     "pageable_async=*") {
  unsigned char *in = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemcpyHtoDAsync_v2(m, in, N, b));
  expect_host(p, 7);
}

PAIR(a_download_to_pageable_memory_is_after_its_stream_only, "cuMemsetD8Async", "cuMemcpyDtoHAsync",
     "pageable_async=*") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, b));
  expect_host(out, 7);
}

/* The call returns once the copy, and all work before it, is done, as the manual says. */
PAIR(the_host_is_after_a_download_to_pageable_memory, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "pageable_async=0") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuMemcpyDtoHAsync_v2(out, o, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* With a driver that queues it, the host has to wait. */
PAIR(a_download_to_pageable_memory_may_be_pending, "cuMemcpyDtoHAsync", "cuMemsetD16Async", "pageable_async=1") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemsetD16Async(m, 0, N / 2, b));
  expect_host(out, 7);
}

CORRECT(a_download_to_pageable_memory_that_is_done, "pageable_async=0") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  OK(cuMemsetD16Async(m, 0, N / 2, b));
  expect_host(out, 7);
}

/* It was staged: the host may use its memory again. */
CORRECT(a_pageable_source_is_used_again, "pageable_async=0") {
  unsigned char *in = new_pageable(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  memset(in, 9, N);
  expect(m, 1);
}

CORRECT(two_uploads_in_one_stream, "pageable_async=*") {
  unsigned char *in = new_pageable(N), *out = new_pageable(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  OK(cuStreamSynchronize(a));
  expect_host(out, 1);
}
