// Package cdata is arrow-go's package of the same name over package cdevice: the same functions and types for
// the Arrow C data, C stream and asynchronous device stream interfaces, of memory of the CPU. A program takes it
// by changing one import:
//
//	import "github.com/arrowdevice/arrowdevice/cdata" // was "github.com/apache/arrow-go/v18/arrow/cdata"
package cdata
