package triton

// A Response is the server's answer to a Request.
type Response struct {
	Model, Version, ID string
	Outputs            []OutputTensor
}

// An OutputTensor describes an output of the model.
type OutputTensor struct {
	Name, Datatype string
	Shape          []int64
	// Region, Offset and ByteSize are where the server says that the output is; Region is empty if it does not say so.
	Region           string
	Offset, ByteSize int64
	// Contents are the elements of an output that is in no region.
	Contents []byte
}
