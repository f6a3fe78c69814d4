package schema

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Export writes the field to *out. The tree is one allocation, which lives until
// out and all that a consumer moved out of it are released.
//
// It writes *out only on success; *out may hold anything before. An error wraps
// arrow.ErrInvalid for a field that Arrow does not allow, arrow.ErrNotImplemented
// for a type that the C data interface cannot express, or syscall.ENOMEM.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowschema-structure
func Export(field arrow.Field, out *abi.ArrowSchema) error {
	p := plans.Get().(*plan)
	defer p.end()
	if err := p.export(&field); err != nil {
		return finish(fielderr.OpExport, err)
	}
	return finish(fielderr.OpExport, p.write(out))
}

// ExportSchema writes the schema to *out, as a struct without a name, with the
// fields as its children and the schema's metadata. It is otherwise like Export.
//
// It writes *out only on success; *out may hold anything before.
func ExportSchema(s *arrow.Schema, out *abi.ArrowSchema) error {
	var key uint64
	var found *cached[template]
	if s != nil && out != nil {
		key = addressKey(s)
		if found = templates.find(key); found != nil && found.value.isOf(s) {
			return finish(fielderr.OpExport, found.value.write(out))
		}
	}
	p := plans.Get().(*plan)
	defer p.end()
	if err := p.exportSchema(s); err != nil {
		return finish(fielderr.OpExport, err)
	}
	if err := p.write(out); err != nil {
		return finish(fielderr.OpExport, err)
	}
	if templates.again(key) && (found == nil || !found.value.refuses(s)) {
		p.keep(key, s, out)
	}
	return nil
}
