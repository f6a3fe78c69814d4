package triton

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// A Server describes a server: its metadata.
type Server struct {
	Name, Version string
	Extensions    []string // "system_shared_memory", "cuda_shared_memory", ...
}

// A Model describes a model of a server: its metadata. [Model.Check] compares a request with it, and [Model.InputSchema] and
// [Model.OutputSchema] are the schemas of batches that fit.
type Model struct {
	Name     string
	Versions []string
	Platform string // "python", "onnxruntime_onnx", ...
	Inputs   []ModelTensor
	Outputs  []ModelTensor
}

// A ModelTensor describes an input or output of a model.
type ModelTensor struct {
	Name     string
	Datatype string  // Triton's: "FP32"
	Shape    []int64 // a dimension of -1 may have any size; with the batch dimension, if the model has one
}

// Server returns the metadata of the server.
func (c *Client) Server(ctx context.Context) (*Server, error) {
	if err := argument.Context("triton: Server", ctx); err != nil {
		return nil, err
	}
	reply, err := c.invoke(ctx, "ServerMetadata", nil)
	if err != nil {
		return nil, err
	}
	s, err := parseServer(reply)
	return s, fielderr.During(opMetadata, err)
}

// Model returns the metadata of a model. If version is empty, the server chooses one. A model or version that the server does not
// have is an error of the server with the code NotFound.
func (c *Client) Model(ctx context.Context, name, version string) (*Model, error) {
	if err := argument.Context("triton: Model", ctx); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, fielderr.During(opMetadata, err)
	}
	if !utf8.ValidString(version) {
		return nil, fielderr.Invalid(opMetadata, "version", quoted(version), "UTF-8")
	}
	message := protofield.AppendBytes(protofield.AppendBytes(nil, 1, name), 2, version)
	reply, err := c.invoke(ctx, "ModelMetadata", message)
	if err != nil {
		return nil, err
	}
	m, err := parseModel(reply)
	return m, fielderr.During(opMetadata, err)
}

// maxListed bounds each list of a server's metadata: an empty element takes two bytes of the message, and up to 60 of memory.
const maxListed = 1 << 16

// listed appends an element to a list of the server's metadata.
func listed[T any](path string, list []T, element T) ([]T, error) {
	if len(list) == maxListed {
		return list, fielderr.Invalid(opMetadata, path, fielderr.Text("more"), fmt.Sprintf("at most %d", maxListed))
	}
	return append(list, element), nil
}

// parseServer reads the message ServerMetadataResponse.
func parseServer(message []byte) (*Server, error) {
	const path = "ServerMetadataResponse"
	s := &Server{}
	err := eachField(path, message, func(f protofield.Field) (err error) {
		switch f.Number {
		case 1:
			s.Name = string(f.Bytes)
		case 2:
			s.Version = string(f.Bytes)
		case 3:
			s.Extensions, err = listed(path+".extensions", s.Extensions, string(f.Bytes))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// parseModel reads the message ModelMetadataResponse.
func parseModel(message []byte) (*Model, error) {
	const path = "ModelMetadataResponse"
	m := &Model{}
	err := eachField(path, message, func(f protofield.Field) (err error) {
		switch f.Number {
		case 1:
			m.Name = string(f.Bytes)
		case 2:
			m.Versions, err = listed(path+".versions", m.Versions, string(f.Bytes))
		case 3:
			m.Platform = string(f.Bytes)
		case 4:
			m.Inputs, err = appendModelTensor(path+".inputs", m.Inputs, f.Bytes)
		case 5:
			m.Outputs, err = appendModelTensor(path+".outputs", m.Outputs, f.Bytes)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// appendModelTensor appends the message ModelMetadataResponse.TensorMetadata.
func appendModelTensor(path string, list []ModelTensor, message []byte) ([]ModelTensor, error) {
	var t ModelTensor
	budget := protofield.Budget(8 * len(message)) // of the shape, as in parseOutput
	err := eachField(path, message, func(f protofield.Field) (err error) {
		switch f.Number {
		case 1:
			t.Name = string(f.Bytes)
		case 2:
			t.Datatype = string(f.Bytes)
		case 3:
			if t.Shape, err = f.AppendTo(t.Shape, &budget); err != nil {
				err = malformed(path+".shape", err)
			}
		}
		return err
	})
	if err != nil {
		return list, err
	}
	if slices.ContainsFunc(t.Shape, func(n int64) bool { return n < -1 }) {
		return list, fielderr.Invalid(opMetadata, path+"["+quoted(t.Name)+"].shape", t.Shape, "dimensions of -1 or more")
	}
	return listed(path, list, t)
}
