// Package soak runs the CUDA half of the module under trouble for a while: 200 goroutines on
// two simulated GPUs copy, export, cancel, hold streams back, capture others and exhaust
// memory, at random. It has only a test, TestSoak:
//
//	make soak                 # 10 minutes
//	make soak SOAKTIME=1m
//	go test ./integration/soak
//
// Environment variables change a run: [Time], [Bound], [Seed] and [Only]. The seed decides what each
// goroutine does in each of its rounds; a failure prints it.
package soak

const (
	// Time is the environment variable for how long a run takes, such as "10m": all its
	// machines together.
	Time = "CDEVICE_SOAK"
	// Bound is the environment variable for how long after the end of its context a call may
	// return. It is 100 ms in make soak, and by default 2 s, because other tests run beside it. It grows with
	// the time for which goroutines wait for a processor meanwhile, of which a run prints how much it was.
	Bound = "CDEVICE_SOAK_BOUND"
	// Seed is the environment variable for the seed of all random choices.
	Seed = "CDEVICE_SOAK_SEED"
	// Only is the environment variable for a regular expression: scenarios whose names do not
	// match it are left out, to look for the cause of a failure.
	Only = "CDEVICE_SOAK_ONLY"
)
