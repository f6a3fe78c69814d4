// Package schema turns arrow-go's fields and schemas into ArrowSchema structs of
// the C data interface, and back.
//
//	Export, ExportSchema    Go -> C, one allocation for the whole tree
//	Import, ImportSchema    C -> Go, everything copied, the C side released
//
// Both directions use one table of the formats of all types (formats.go). Errors are of type
// *fielderr.Error: they name the field of the C struct that is wrong, even when exporting, and wrap
// arrow.ErrInvalid for what the interface forbids, or arrow.ErrNotImplemented for what it allows
// and arrow-go cannot hold (or the reverse).
//
// # Extension types
//
// An extension type travels as its storage type and two keys of the field's metadata. On import,
// the type that arrow.GetExtensionType knows by that name is rebuilt at every level of the tree,
// and the two keys are removed from the metadata. For an unknown name the field keeps the storage
// type and the keys, so that an export is the same as what was imported. A rebuilt type may rename
// the fields of its storage, but must keep its layout. An extension type whose storage is itself an
// extension type cannot be expressed: there is one pair of keys.
//
// # Repeated schemas
//
// A producer sends one schema with many batches. From the second time on, an export of the same
// *arrow.Schema is a copy of the block that was made before (template.go), and an import of an equal
// tree returns the schema that it returned before (known.go). Both look at all that could have
// changed: the structs of the tree, and what a program can set in arrow-go's types. What the caches
// hold is bounded (cache.go).
//
// # Not kept
//
// arrow-go's types cannot hold these parts of an ArrowSchema. An import drops them:
//   - the name, nullability and metadata of a dictionary's values, except a
//     registered extension type;
//   - the names and metadata of the two children of a run-end encoded type, with
//     the same exception;
//   - the names of a map's entries, key and value; the nullability of its entries
//     and its key, which Arrow does not allow to be null; the metadata of its
//     entries;
//   - the name and flags of the root that ImportSchema reads. Extension keys
//     in its metadata stay there, as metadata of the schema.
//
// arrow-go has no fixed-size list of size 0: importing "+w:0" is an error that
// wraps arrow.ErrNotImplemented.
//
// # Limits
//
// A tree of another library may be garbage, may share structs, and may even contain itself. These
// limits, which apply in both directions, ensure that reading it ends: at most 64 levels below the
// root, 1,048,576 structs (a struct that is reached twice counts twice), and 64 MiB of formats,
// names and metadata in one tree; at most 65,536 pairs of metadata on one struct. A million structs
// are ten times the columns of the widest tables, and take some 500 MB to read; they are counted
// before anything is read, so that a tree with more costs neither memory nor time.
package schema
