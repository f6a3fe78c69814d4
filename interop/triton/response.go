package triton

// A Response is the server's response to a Request.
type Response struct {
	Model, Version, ID string
	Outputs            []OutputTensor

	requests map[*Outputs]uint64 // of each Outputs of the request, its number there; nil if Infer has not made the response
}

// An OutputTensor describes an output of the model.
type OutputTensor struct {
	Name, Datatype string
	Shape          []int64
	// Region, Offset and ByteSize locate the output; Region is empty if the response does not.
	Region           string
	Offset, ByteSize int64
	// Contents are the elements of an output that is not in a region.
	Contents []byte
}
