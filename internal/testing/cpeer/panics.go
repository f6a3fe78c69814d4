package cpeer

// #include "cpeer.h"
//
// void cpeer_panicking_array_release(struct ArrowArray* array);
import "C"

// PanickingArrayRelease is the C address of a release callback that is written in Go. It marks the
// struct released, and panics.
var PanickingArrayRelease = uintptr(C.cpeer_panicking_array_release)

//export cpeer_panicking_array_release
func cpeer_panicking_array_release(array *C.struct_ArrowArray) {
	array.release = nil
	panic("cpeer: a release callback panics")
}
