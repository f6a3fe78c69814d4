/* The functions that came with version 13, and memory, streams and contexts of 12 that
 * it gave a new signature, as in functions.h. Only a library that is built with
 * -DCUDASIM_13 exports them. */

API(cuCtxGetDevice, _v2, 13000, context_device_of, (CUdevice *device, CUcontext context), (device, context))
API(cuCtxSynchronize, _v2, 13000, context_synchronize_of, (CUcontext context), (context))

API(cuMemGetDefaultMemPool, , 13000, place_default, (CUmemoryPool *pool, CUmemLocation *where, int type), (pool, where, type))
API(cuMemGetMemPool, , 13000, place_pool, (CUmemoryPool *pool, CUmemLocation *where, int type), (pool, where, type))
API(cuMemSetMemPool, , 13000, place_set_pool, (CUmemLocation *where, int type, CUmemoryPool pool), (where, type, pool))

API_PTSZ(cuMemcpyBatchAsync, _v2, 13000, batch_copy_v2, (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count, CUstream stream), (to, from, sizes, count, attributes, starts, attribute_count, stream))
API_PTSZ(cuMemPrefetchBatchAsync, , 13000, batch_prefetch, (CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *starts, size_t place_count, unsigned long long flags, CUstream stream), (addresses, sizes, count, places, starts, place_count, flags, stream))
API_PTSZ(cuMemDiscardBatchAsync, , 13000, batch_discard, (CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags, CUstream stream), (addresses, sizes, count, flags, stream))
API_PTSZ(cuMemDiscardAndPrefetchBatchAsync, , 13000, batch_discard_prefetch, (CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *starts, size_t place_count, unsigned long long flags, CUstream stream), (addresses, sizes, count, places, starts, place_count, flags, stream))
