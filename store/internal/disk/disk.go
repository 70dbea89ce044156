// Package disk is the one small interface through which the store touches the
// disk, so that tests can make it fail or forget.
package disk

// FS is replaced by its builder.
type FS interface{}
