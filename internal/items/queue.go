package items

// Queue holds items in the order of their arrival. Once it has held as many items as it ever does, it
// allocates no memory.
type Queue[T any] struct {
	items []T
	taken int // the number of items at the beginning that were taken
}

// Size returns the number of items.
func (q *Queue[T]) Size() int { return len(q.items) - q.taken }

// Push appends an item.
func (q *Queue[T]) Push(item T) {
	// Moving the items when at least half of the places are free costs one move per item.
	if len(q.items) == cap(q.items) && 2*q.taken >= len(q.items) {
		left := copy(q.items, q.items[q.taken:])
		clear(q.items[left:]) // what they hold is no longer needed
		q.items, q.taken = q.items[:left], 0
	}
	q.items = append(q.items, item)
}

// Pop takes the first item. There must be one.
func (q *Queue[T]) Pop() T {
	var none T
	item := q.items[q.taken]
	q.items[q.taken] = none
	q.taken++
	return item
}

// PopAll takes all items.
func (q *Queue[T]) PopAll() []T {
	all := q.items[q.taken:]
	*q = Queue[T]{}
	return all
}
