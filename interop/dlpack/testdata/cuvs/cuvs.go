// Package cuvs has the shape of the tensor of NVIDIA cuVS's Go binding (github.com/nvidia/cuvs/go), for
// a test of the recipe in docs/dlpack.md: the field is a pointer to a type of cgo, which no other
// package can name.
package cuvs

/*
#include <stdint.h>

typedef struct {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

typedef struct managed {
  tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct managed*);
} managed;

// What cuVS requires of a dataset: float32, 2-D, rows without gaps.
static int accepts(const managed* m) {
  const tensor* t = &m->dl_tensor;
  if (t->code != 2 || t->bits != 32 || t->lanes != 1 || t->ndim != 2) return 0;
  return t->strides == 0 || (t->strides[1] == 1 && t->strides[0] == t->shape[1]);
}

static int64_t size(const managed* m, int dim) { return m->dl_tensor.shape[dim]; }

static uintptr_t data(const managed* m) { return (uintptr_t)m->dl_tensor.data + m->dl_tensor.byte_offset; }
*/
import "C"

import "errors"

// Tensor is a matrix.
type Tensor[T any] struct {
	C_tensor *C.managed
	shape    []int64
}

// Close fails: cuVS's frees the data with its own allocator.
func (t *Tensor[T]) Close() error { panic("the data is not cuVS's") }

// Dataset is what an index keeps of its dataset: a view.
type Dataset struct {
	Rows, Columns int64
	Data          uintptr
}

// BuildIndex stands for the functions that take a dataset.
func BuildIndex[T any](dataset *Tensor[T]) (Dataset, error) {
	if C.accepts(dataset.C_tensor) == 0 {
		return Dataset{}, errors.New("not a dataset")
	}
	return Dataset{int64(C.size(dataset.C_tensor, 0)), int64(C.size(dataset.C_tensor, 1)), uintptr(C.data(dataset.C_tensor))}, nil
}
