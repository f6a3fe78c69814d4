package cudaalloc

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// CanAccessPeer reports whether work on this GPU can be given access to memory of
// the other one, over NVLink or PCIe. Copies between the two by [Device.Copy] work in
// any case.
func (d *Device) CanAccessPeer(peer *Device) (bool, error) {
	if peer == nil {
		return false, argument.Nil("cuda: CanAccessPeer", "peer", "a GPU")
	}
	return d.gpu.Ctx.CanAccess(peer.gpu.Ctx.Device)
}

// EnablePeerAccess lets work on this GPU read and write memory of peer, including memory
// that is allocated already. Access is in one direction, and lasts until the process
// ends. Where the two GPUs cannot have it, the error wraps device.ErrNotSupported.
func (d *Device) EnablePeerAccess(peer *Device) error {
	if peer == nil {
		return argument.Nil("cuda: EnablePeerAccess", "peer", "a GPU")
	}
	if d.gpu.Platform != peer.gpu.Platform {
		return fmt.Errorf("cuda: %s and its peer %s are of different drivers: %w", d.ID(), peer.ID(), device.ErrNotSupported)
	}
	if d.gpu == peer.gpu {
		return nil
	}
	can, err := d.CanAccessPeer(peer)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf("cuda: %s cannot access memory of %s: %w", d.ID(), peer.ID(), device.ErrNotSupported)
	}
	return d.gpu.EnablePeerAccess(peer.gpu)
}
