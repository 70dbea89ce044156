// Package docs holds the documents that the program itself shows.
package docs

import _ "embed"

// Man is the manual page in man(7) macros, made from sessionfs.1.md.
//
//go:embed sessionfs.1
var Man []byte
