package doctor

import "os"

// variables are the environment variables that change what a program with this library does.
var variables = []Variable{
	{Name: "CDEVICE_CUDA_DRIVER", Means: "the driver that this library loads"},
	{Name: "CDEVICE_TRACE", Means: "1: this library remembers where live objects were made, which costs time"},
	{Name: "CUDASIM", Means: "the machine that the simulated driver is"},
	{Name: "CUDA_VISIBLE_DEVICES", Means: "the only GPUs that the driver shows to this process"},
	{Name: "CUDA_DEVICE_ORDER", Means: "the order in which the driver numbers GPUs"},
	{Name: "CUDA_LAUNCH_BLOCKING", Means: "1: launches of kernels wait until they are done"},
	{Name: "CUDA_MPS_PIPE_DIRECTORY", Means: "the MPS server that shares the GPU"},
	{Name: "NVIDIA_VISIBLE_DEVICES", Means: "the GPUs that a container was given"},
	{Name: "NVIDIA_DRIVER_CAPABILITIES", Means: "the libraries of the driver that a container was given"},
	{Name: "NUMBA_CUDA_DRIVER", Means: "the driver that Numba loads"},
	{Name: "NUMBA_ENABLE_CUDASIM", Means: "1: Numba simulates kernels in Python, without a driver"},
	{Name: "LD_LIBRARY_PATH", Means: "where libraries are looked for first"},
	{Name: "PYTHONPATH", Means: "where Python looks for libraries first"},
}

// readEnvironment returns the variables that are set, even those that are empty.
func readEnvironment() []Variable {
	set := []Variable{}
	for _, v := range variables {
		if value, ok := os.LookupEnv(v.Name); ok {
			v.Value = value
			set = append(set, v)
		}
	}
	return set
}

// variable returns the value of a variable, and whether it is set.
func (r *Report) variable(name string) (string, bool) {
	for _, v := range r.Environment {
		if v.Name == name {
			return v.Value, true
		}
	}
	return "", false
}
