package ipcmessage

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// CheckTypes returns an error about the first column whose type a schema of Arrow IPC cannot describe, or nil. A field has one extension
// type and one dictionary: readers take an extension to be that of the dictionary, and another type arrives, or none. s may be nil, that of
// a reader that has failed before it had one. A panic of a method of an extension type, which is a program's, is the caller's to recover.
func CheckTypes(s *arrow.Schema) *Error {
	if s == nil {
		return nil
	}
	for i, f := range s.Fields() {
		if at, fault := faultOf(f.Type); fault != "" {
			return &Error{Field: fmt.Sprintf("columns[%d] %q%s", i, f.Name, at), Text: fault}
		}
	}
	return nil
}

// faultOf returns the first part of a type that cannot be described, and why, or empty strings.
func faultOf(dt arrow.DataType) (at, fault string) {
	switch dt := dt.(type) {
	case arrow.ExtensionType:
		return faultOfExtension(dt)
	case *arrow.DictionaryType:
		return faultOfDictionary(dt)
	case arrow.NestedType:
		for i, f := range dt.Fields() {
			if at, fault := faultOf(f.Type); fault != "" {
				return fmt.Sprintf(".children[%d]%s", i, at), fault
			}
		}
	}
	return "", ""
}

func faultOfExtension(dt arrow.ExtensionType) (at, fault string) {
	switch storage := dt.StorageType().(type) {
	case arrow.ExtensionType:
		return "", fmt.Sprintf("the extension type %q over the extension type %q, which an IPC schema cannot describe: use the storage",
			dt.ExtensionName(), storage.ExtensionName())
	case *arrow.DictionaryType:
		return "", fmt.Sprintf("the extension type %q over a dictionary, which arrow-go's IPC writer does not write: use the storage", dt.ExtensionName())
	default:
		return faultOf(storage)
	}
}

func faultOfDictionary(dt *arrow.DictionaryType) (at, fault string) {
	switch values := dt.ValueType.(type) {
	case arrow.ExtensionType:
		return "", fmt.Sprintf("values of the extension type %q in a dictionary, which an IPC schema cannot describe: decode it, or use the storage",
			values.ExtensionName())
	case *arrow.DictionaryType:
		return "", "values of a dictionary in a dictionary, which an IPC schema cannot describe: decode one"
	default:
		at, fault = faultOf(values)
		if fault != "" {
			at = ".dictionary" + at
		}
		return at, fault
	}
}
