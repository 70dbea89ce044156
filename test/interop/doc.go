// Package interop drives one store from several processes at once, some through
// this program's store and some by the peer's own protocol, in code that shares
// nothing with the product. It holds nothing but tests.
package interop
