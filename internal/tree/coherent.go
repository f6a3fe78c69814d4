package tree

import "github.com/arrowdevice/arrowdevice/device"

// ForCPU returns the location of the nodes, as memory that the CPU can access if that is so although the device type
// does not imply it: on a hardware-coherent machine libraries declare managed and plain memory as the
// GPU's (cuDF labels all of its memory so, whichever resource of RMM allocated it). It asks the driver about
// each buffer, and of other devices nothing. If the driver fails, the CPU cannot access the memory.
func (p Location) ForCPU(nodes []Node) Location {
	if p.CPUAccessible() {
		return p
	}
	dev, err := p.Device()
	if err != nil {
		return p
	}
	if c, ok := dev.(device.Coherent); !ok || !c.HardwareCoherent() {
		return p
	}
	if asked, ok := dev.(device.Prober); ok {
		p.Assumed = onHost(asked, p.ID, nodes)
	}
	return p
}

// onHost reports whether each buffer that an array needs is memory that the CPU can access. Managed memory must be
// of the declared GPU: of another one, the CPU may not be able to access it while that one works.
func onHost(asked device.Prober, declared device.ID, nodes []Node) bool {
	for i := range nodes {
		n := &nodes[i]
		for _, addr := range n.Buffers {
			if addr == 0 || n.Length == 0 {
				continue
			}
			found, err := asked.Lookup(device.Ptr(addr))
			if err != nil || !found.ID.Type.CPUAccessible() ||
				found.ID.Type == device.CUDAManaged && found.ID.Ordinal != declared.Ordinal {
				return false
			}
		}
		if !onHost(asked, declared, n.Children) {
			return false
		}
	}
	return true
}
