#include "dlpack.h"

/* The tensor is in the block, so the array is moved out before the block ends. */
static void end_export(struct cdevice_v0_dl_export* block) {
  struct ArrowArray array = block->array;
  cdevice_v0_block_end(&block->head);
  if (array.release != NULL) array.release(&array);
}

void cdevice_v0_dl_delete(struct cdevice_v0_dl_managed* tensor) {
  if (tensor != NULL) end_export(tensor->manager_ctx);
}

void cdevice_v0_dl_delete_versioned(struct cdevice_v0_dl_versioned* tensor) {
  if (tensor != NULL) end_export(tensor->manager_ctx);
}

void cdevice_v0_dl_release(struct ArrowArray* array) {
  if (array->release == NULL) return;
  struct cdevice_v0_dl_import* block = array->private_data;
  uint64_t* tensor = block->tensor;
  uint64_t versioned = block->versioned;
  array->release = NULL;
  cdevice_v0_block_end(&block->head);
  cdevice_v0_dl_call_deleter(tensor, versioned);
}

void cdevice_v0_dl_release_child(struct ArrowArray* array) { array->release = NULL; }

void cdevice_v0_dl_call_deleter(uint64_t* tensor, uint64_t versioned) {
  if (versioned) {
    struct cdevice_v0_dl_versioned* t = (struct cdevice_v0_dl_versioned*)tensor;
    if (t->deleter != NULL) t->deleter(t);
  } else {
    struct cdevice_v0_dl_managed* t = (struct cdevice_v0_dl_managed*)tensor;
    if (t->deleter != NULL) t->deleter(t);
  }
}
