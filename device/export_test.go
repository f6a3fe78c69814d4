package device

// Forget undoes Register and RegisterUUIDs, and drops the devices that Open kept, for tests that register.
func Forget(t Type) {
	registry.Lock()
	defer registry.Unlock()
	delete(registry.openers, t)
	delete(registry.uuids, t)
	for id := range registry.devices {
		if id.Type == t {
			delete(registry.devices, id)
		}
	}
}
