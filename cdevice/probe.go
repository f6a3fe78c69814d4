package cdevice

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
)

// Full validation asks the devices: that of memory which the host cannot read, and about
// memory that it can, whether that is so.

// probeHost checks that no buffer of a tree that the host is about to read is memory of a
// device: reading it would end the process. Only devices that are open already are asked.
func probeHost(n *node) error {
	for i, addr := range n.buffers {
		if addr == 0 || n.length == 0 {
			continue
		}
		field := fmt.Sprintf("buffers[%d]", i)
		found, err := device.Lookup(device.Ptr(addr))
		if err != nil {
			return fieldError(opImport, field, hex(addr), nil, err)
		}
		if !found.ID.Type.HostReadable() {
			return invalid(opImport, field, hex(addr)+", memory of "+found.ID.String(), "memory that the host can read")
		}
	}
	for i := range n.children {
		if err := probeHost(&n.children[i]); err != nil {
			return within(n.childName(i), err)
		}
	}
	return nil
}

// probeImported checks that every buffer is memory of the declared device and as large
// as the array needs it.
func probeImported(ctx context.Context, mem *memoryOwner, at place, nodes []node, name func(i int) string) error {
	dev, err := at.device()
	if err != nil {
		return fieldError(opImport, "ArrowDeviceArray.device_type", at.id.Type, "a device of this process (WithFullValidation)", err)
	}
	p := prober{id: at.id}
	var ok bool
	if p.Prober, ok = dev.(device.Prober); !ok {
		return fieldError(opImport, "ArrowDeviceArray.device_type", at.id.Type, "a device that knows its memory (WithFullValidation)", device.ErrNotSupported)
	}
	if err := probeEvent(at); err != nil {
		return fieldError(opImport, "ArrowDeviceArray.sync_event", hex(at.event), nil, err)
	}
	for i := range nodes {
		if err := p.node(&nodes[i]); err != nil {
			return within(name(i), err)
		}
	}
	src, err := openSource(ctx, mem, at, nodes)
	if err != nil {
		return fieldError(opImport, "ArrowDeviceArray", nil, nil, err)
	}
	defer src.close()
	trees, err := src.compact(name, false)
	if err != nil {
		return during(opImport, err)
	}
	for i := range trees {
		if err := p.compact(&trees[i]); err != nil {
			return within(name(i), err)
		}
	}
	return nil
}

// probeEvent asks for the event, which only a driver can know.
func probeEvent(at place) error {
	if at.event == 0 {
		return nil
	}
	event, err := at.openEvent()
	if err != nil {
		return err
	}
	defer event.Close() // borrowed
	_, err = event.Query()
	return err
}

// prober asks a device about addresses.
type prober struct {
	device.Prober
	id device.ID
}

// node checks what the structs alone say of the buffers.
func (p *prober) node(n *node) error {
	st := n.storage()
	count := len(n.buffers)
	if n.layout.store == storeView {
		count-- // the sizes are in host memory
	}
	for i, addr := range n.buffers[:count] {
		if addr == 0 || n.length == 0 {
			continue
		}
		if err := p.memory(fmt.Sprintf("buffers[%d]", i), addr, leastSize(st, n.layout, i, n.offset+n.length)); err != nil {
			return err
		}
	}
	for i := range n.children {
		if err := p.node(&n.children[i]); err != nil {
			return within(n.childName(i), err)
		}
	}
	return nil
}

// compact checks the buffers whose size their contents say.
func (p *prober) compact(t *compact) error {
	for i, part := range t.parts {
		if part.made != nil || part.size == 0 {
			continue
		}
		if err := p.memory(fmt.Sprintf("buffers[%d]", i), part.addr, part.size); err != nil {
			return err
		}
	}
	for i := range t.children {
		if err := p.compact(&t.children[i]); err != nil {
			return within(childName(i), err)
		}
	}
	return nil
}

func (p *prober) memory(field string, addr uintptr, size int64) error {
	found, err := p.Lookup(device.Ptr(addr))
	if err != nil {
		return fieldError(opImport, field, hex(addr), nil, err)
	}
	if found.ID.Type != p.id.Type || found.ID.Ordinal != p.id.Ordinal {
		return invalid(opImport, field, hex(addr)+", memory of "+found.ID.String(), "memory of "+p.id.String())
	}
	if !found.Contains(device.Ptr(addr), size) {
		return invalid(opImport, field, hex(addr), fmt.Sprintf("an allocation with %d bytes from there", size))
	}
	return nil
}
