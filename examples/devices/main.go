// Devices lists the GPUs that this library finds:
//
//	go run ./examples/devices
//
// It exits with status 1 where there is no driver or no GPU, and says why.
package main

import (
	"fmt"
	"os"

	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func main() {
	if err := list(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func list() error {
	version, err := cudaalloc.DriverVersion()
	if err != nil {
		return err
	}
	devices, err := cudaalloc.Devices()
	if err != nil {
		return err
	}
	fmt.Printf("driver for CUDA %d.%d\n", version/1000, version%1000/10)
	for _, d := range devices {
		fmt.Println(d)
	}
	return nil
}
