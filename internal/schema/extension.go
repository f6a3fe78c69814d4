package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The metadata keys that make a field one of an extension type.
const (
	extensionName     = "ARROW:extension:name"
	extensionMetadata = "ARROW:extension:metadata"
)

// isNil reports whether a type is nil or a nil pointer, on which most methods of arrow-go's types
// panic.
func isNil(dt arrow.DataType) bool {
	v := reflect.ValueOf(dt)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// withoutExtension returns the metadata without the keys of an extension type.
func (p pairs) withoutExtension() pairs {
	var rest pairs
	for i, k := range p.keys {
		if k != extensionName && k != extensionMetadata {
			rest.keys, rest.values = append(rest.keys, k), append(rest.values, p.values[i])
		}
	}
	return rest
}

// withExtension returns the metadata with the keys of an extension type at its end.
func (p pairs) withExtension(name, data string) pairs {
	rest := p.withoutExtension()
	rest.keys = append(rest.keys, extensionName, extensionMetadata)
	rest.values = append(rest.values, name, data)
	return rest
}

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
	if isNil(ext) {
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
