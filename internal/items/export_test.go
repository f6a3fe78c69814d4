package items

// Awaited reports whether Next waits for the read that is under way.
func (a *Ahead[T]) Awaited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next != nil && a.next.awaited
}
