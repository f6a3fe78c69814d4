//go:build race

package bridge

import "sync/atomic"

var order atomic.Int64

// ordered tells the race detector that the calls of it are in an order. The detector does not see atomic
// operations on memory of C, by which the uses of a value are before its end.
func ordered() { order.Add(1) }
