//go:build cdata_integration

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

func exportSchema(path string, out *cdata.CArrowSchema) error {
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.Release()
	return cdevice.ExportSchema(file.Schema(), out)
}

// compareSchema takes ownership of *in, even if it returns an error.
func compareSchema(path string, in *cdata.CArrowSchema) error {
	got, err := cdevice.ImportSchema(in)
	if err != nil {
		return err
	}
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.Release()
	want := file.Schema()
	if !want.Equal(got) || !want.Metadata().Equal(got.Metadata()) {
		return fmt.Errorf("the schemas differ: JSON has %v, the C struct %v", want, got)
	}
	return nil
}
