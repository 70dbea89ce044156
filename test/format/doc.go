// Package format holds docs/store-format.md to the store: what its worked
// examples show is what is written, byte for byte and step by step.
package format
