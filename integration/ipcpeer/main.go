// Command ipcpeer is the process in Go at the other end of CUDA IPC handles, for tests of other libraries.
//
// "ipcpeer share" allocates 1000 int32 of 0 to 999, prints the handle, and keeps them until a line comes. "ipcpeer
// open HANDLE" opens 1000 int32 by a handle, prints their sum, and keeps them open until a line comes. Both end with
// "closed" once nothing is left.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

const (
	count = 1000
	size  = 4 * count
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return err
	}
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	host, err := gpu.AllocateHost(ctx, size)
	if err != nil {
		return err
	}
	p := host.Ptr()
	values := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
	var mem device.Memory
	switch {
	case len(args) == 1 && args[0] == "share":
		mem, err = share(ctx, gpu, stream, host, values)
	case len(args) == 2 && args[0] == "open":
		mem, err = open(ctx, gpu, stream, host, values, args[1])
	default:
		return fmt.Errorf("usage: ipcpeer share, or ipcpeer open HANDLE")
	}
	if err != nil {
		return err
	}
	bufio.NewScanner(os.Stdin).Scan()
	if err := mem.Free(stream); err != nil {
		return err
	}
	if err := host.Free(stream); err != nil {
		return err
	}
	if err := gpu.Flush(ctx); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}

func share(ctx context.Context, gpu *cudaalloc.Device, s device.Stream, host device.Memory, values []byte) (device.Memory, error) {
	mem, err := gpu.Shareable().Allocate(ctx, size, s)
	if err != nil {
		return nil, err
	}
	for i := range count {
		binary.LittleEndian.PutUint32(values[4*i:], uint32(i))
	}
	if err := gpu.Copy([]device.Range{{Dst: mem.Ptr(), Src: host.Ptr(), Size: size}}, s); err != nil {
		return nil, err
	}
	if err := s.Synchronize(ctx); err != nil {
		return nil, err
	}
	h, _, err := gpu.MemoryHandle(mem.Ptr())
	if err != nil {
		return nil, err
	}
	fmt.Println(hex.EncodeToString(h[:]))
	return mem, nil
}

func open(ctx context.Context, gpu *cudaalloc.Device, s device.Stream, host device.Memory, values []byte, handle string) (device.Memory, error) {
	b, err := hex.DecodeString(handle)
	if err != nil || len(b) != len(device.IPCHandle{}) {
		return nil, fmt.Errorf("handle %q, want 64 bytes in hexadecimal", handle)
	}
	mem, err := gpu.OpenMemory(ctx, device.IPCHandle(b), size, nil)
	if err != nil {
		return nil, err
	}
	if err := gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: mem.Ptr(), Size: size}}, s); err != nil {
		return nil, err
	}
	if err := s.Synchronize(ctx); err != nil {
		return nil, err
	}
	sum := 0
	for i := range count {
		sum += int(int32(binary.LittleEndian.Uint32(values[4*i:])))
	}
	fmt.Println(sum)
	return mem, nil
}
