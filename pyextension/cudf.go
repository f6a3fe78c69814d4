//go:build cgo && unix

package pyextension

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// forCuDF converts a batch or array to one that libcudf imports.
func forCuDF(in *invocation, o *object) (any, error) {
	loses, err := argument[bool](in, 1)
	if err != nil {
		return nil, err
	}
	var opts []cdevice.CuDFOption
	if loses {
		opts = append(opts, cdevice.WithTimeZoneLoss())
	}
	switch o.kind {
	case kindBatch:
		return in.batch(o.batch.ForCuDF(in.scope.context(), opts...))
	case kindArray:
		return in.array(o.array.ForCuDF(in.scope.context(), opts...))
	}
	return nil, typeErrorf("a %s is not an array", o.kind)
}

// fromCuDF gives a batch the schema, or an array the type of the field, that it had before libcudf.
func fromCuDF(in *invocation, o *object) (any, error) {
	wanted, err := argument[*source](in, 1)
	if err != nil {
		return nil, err
	}
	switch o.kind {
	case kindBatch:
		schema, err := wanted.aSchema()
		if err != nil {
			return nil, err
		}
		return in.batch(o.batch.FromCuDF(in.scope.context(), schema))
	case kindArray:
		field, err := wanted.field()
		if err != nil {
			return nil, err
		}
		return in.array(o.array.FromCuDF(in.scope.context(), field.Type))
	}
	return nil, typeErrorf("a %s is not an array", o.kind)
}

// field is the schema of an array.
func (s *source) field() (arrow.Field, error) {
	switch {
	case s.err != nil:
		return arrow.Field{}, s.err
	case s.form == formSchema:
		return cdevice.ImportField(s.cSchema())
	}
	return arrow.Field{}, s.refuse(kindSchema)
}
