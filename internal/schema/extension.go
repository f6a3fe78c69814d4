package schema

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// rebuild puts the extension type that the metadata names around its storage and
// takes it out of the metadata. If the name is not registered, it returns both unchanged.
func rebuild(storage arrow.DataType, md arrow.Metadata) (arrow.DataType, arrow.Metadata, error) {
	name, ok := md.GetValue(extensionName)
	if !ok {
		return storage, md, nil
	}
	registered := arrow.GetExtensionType(name)
	if registered == nil {
		return storage, md, nil
	}
	data, _ := md.GetValue(extensionMetadata)
	dt, err := deserialize(registered, storage, data)
	if err != nil {
		return nil, md, &fielderr.Error{
			Field: fmt.Sprintf(".metadata[%q]", extensionName), Got: name,
			Err: fmt.Errorf("%w: extension type: %w", arrow.ErrInvalid, err),
		}
	}
	rest := pairsOf(md).withoutExtension()
	return dt, arrow.NewMetadata(rest.keys, rest.values), nil
}

// deserialize calls the program's code of an extension type. It refuses a type whose layout is not
// that of the storage, since readers would then read beyond the buffers.
func deserialize(registered arrow.ExtensionType, storage arrow.DataType, data string) (dt arrow.DataType, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in Deserialize: %v", p)
		}
	}()
	ext, err := registered.Deserialize(storage, data)
	if err != nil {
		return nil, err
	}
	if argument.IsNil(ext) {
		return nil, errors.New("no type from Deserialize")
	}
	if !sameLayout(ext.StorageType(), storage) {
		return nil, fmt.Errorf("storage %v from Deserialize for %v", fielderr.Type(ext.StorageType()), fielderr.Type(storage))
	}
	return ext, nil
}

// sameLayout reports whether arrays of two types have the same buffers. The names, nullability and
// metadata of fields are not compared.
func sameLayout(a, b arrow.DataType) bool {
	var x, y plan
	if x.export(&arrow.Field{Type: a}) != nil || y.export(&arrow.Field{Type: b}) != nil {
		return false
	}
	return slices.EqualFunc(x.nodes, y.nodes, func(m, n node) bool {
		return m.format == n.format && m.children == n.children && m.dictionary == n.dictionary
	})
}
